"""`pqbroker doctor`: verify a stopped broker's directory, down to the last record. Changes nothing."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.options import Json, assignments
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.progress import Progress
from pqbroker.cli.refusals import CommandError
from pqbroker.doctor.findings import Findings

COLUMNS = ("weight", "check", "where", "what", "cure")


app = Family()


@declare(app, "doctor", "pqbroker doctor ./data")
def doctor(
    directory: Annotated[Path, Argument(metavar="DIR", help="Data directory of a stopped broker.")],
    pool: Annotated[
        list[str] | None, option(metavar="NAME=DIR", help="Pool outside the data directory; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Verify the data directory of a stopped broker.

    Checks every checksum, reference and invariant and prints what is wrong, where, and what to do. Changes nothing;
    exit status 1 means damage.
    """
    pools = {name: Path(place) for name, place in assignments("--pool", pool or [], "archive=/mnt/archive").items()}
    findings = examine_directory(directory, pools)
    if json:
        show_json(
            {
                "directory": str(directory),
                "healthy": not findings.damages,
                "checked": findings.seen,
                "damages": findings.damages,
                "harmless": findings.oddities,
                "findings": [asdict(finding) for finding in findings.found],
            }
        )
    else:
        _tell(directory, findings)
    if findings.damages:
        things = "1 thing is" if findings.damages == 1 else f"{findings.damages} things are"
        raise CommandError(f"{directory} is damaged: {things} wrong")


def examine_directory(directory: Path, pools: Mapping[str, Path]) -> Findings:
    """What is found in a directory. CommandError when it cannot be looked at as a whole."""
    from pqbroker.doctor.checkup import examine
    from pqbroker.storage.engine import EngineError

    with Progress("bytes verified", None) as shown:
        findings = Findings(shown.advance)
        checking = examine(directory, pools, findings, shown.expect)
        try:
            with asyncio.Runner() as runner:
                # Not `run`: on Ctrl-C that waits until the task waits, which one that only computes never does.
                runner.get_loop().run_until_complete(checking)
        except EngineError as cannot:
            raise CommandError(str(cannot)) from cannot
        except OSError as failure:
            raise CommandError(f"{directory} is unreadable: {failure}; see that this user may read it") from failure
    return findings


def _tell(directory: Path, findings: Findings) -> None:
    if found := findings.found:
        rows = [(each.weight.value, each.check, each.where, each.what, each.cure) for each in found]
        show_table(COLUMNS, rows)
        left = findings.damages + findings.oddities - len(found)
        if left:
            say(f"and {left} more")
    checked = ", ".join(f"{number} {kind}" for kind, number in findings.seen.items())
    say(f"{directory}: {'damaged' if findings.damages else 'healthy'}; checked {checked}")
