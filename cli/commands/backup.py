"""`pqbroker backup`: have a running broker copy its data directory, as it is at one moment."""

from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.options import Http, Json
from pqbroker.cli.output import say, show_json
from pqbroker.cli.parsing import Argument
from pqbroker.cli.web import DEFAULT_HTTP, Web

_TIMEOUT_S = 6 * 3600.0

app = Family()


@declare(app, "backup", "pqbroker backup monday")
def backup(
    directory: Annotated[
        str, Argument(metavar="DIR", help="Name of a new directory; or its path on the broker's machine.")
    ],
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Back up a running broker.

    The broker copies its data as of one moment, with every record acknowledged before the command, and serves
    meanwhile. The copy is on the broker's machine: below `backups` in the data directory, or where pqbroker.backup.dir
    says. Files are linked where that is possible. `pqbroker doctor` verifies a backup, `pqbroker restore` restores it.
    """
    with Web(http, _TIMEOUT_S) as web:
        made = web.post("/v1/backups", {"name": directory}, "directory")
    if json:
        show_json(made)
        return
    bytes_taken = f"{made['linked_bytes']} bytes linked, {made['copied_bytes']} copied"
    say(f"{made['directory']}: {made['files']} files, {bytes_taken}")
