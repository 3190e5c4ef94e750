"""`pqbroker restore`: make a data directory of a backup, and verify it."""

from pathlib import Path
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.cli.options import Json, assignments
from pqbroker.cli.output import say, show_json
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.progress import Progress
from pqbroker.cli.refusals import CommandError

app = Family()


@declare(app, "restore", "pqbroker restore ./data/backups/monday ./restored")
def restore(
    backup: Annotated[Path, Argument(metavar="BACKUP", help="Directory that `pqbroker backup` made.")],
    directory: Annotated[Path, Argument(metavar="DIR", help="Data directory to make: new, or empty.")],
    pool: Annotated[
        list[str] | None, option(metavar="NAME=DIR", help="Pool outside the data directory; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Restore a backup to a new data directory.

    Copies every file and verifies the copy as `pqbroker doctor` does; exit status 1 means damage. Start a broker on it
    with `pqbroker serve --data DIR`, once the broker that was backed up is stopped.
    """
    from pqbroker.storage.engine import EngineError
    from pqbroker.storage.engine_kinds import kind_of

    places = {name: Path(place) for name, place in assignments("--pool", pool or [], "archive=/mnt/archive").items()}
    with Progress("bytes copied", None) as shown:
        try:
            kind_of(str(backup)).restore(backup, directory, places, shown.advance)
        except EngineError as cannot:
            raise CommandError(str(cannot)) from cannot
        except OSError as failure:
            raise CommandError(f"{backup} was not restored to {directory}: {failure}; delete the copy") from failure
    findings = examine_directory(directory, places)
    if json:
        show_json({"directory": str(directory), "healthy": not findings.damages, "checked": findings.seen})
    if findings.damages:
        raise CommandError(f"{directory} is damaged, as the backup is: `pqbroker doctor {directory}` says where")
    if not json:
        say(f"{directory}: restored and healthy; `pqbroker serve --data {directory}` serves it")
