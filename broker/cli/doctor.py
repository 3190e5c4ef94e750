"""`pqbroker doctor`: verify a stopped broker's directory, down to the last record. Changes nothing."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pqbroker.broker.cli.command import declare
from pqbroker.broker.cli.options import Json, assignments
from pqbroker.broker.cli.output import progress, say, show_json, show_table
from pqbroker.broker.cli.refusals import CommandError
from pqbroker.broker.doctor.findings import Findings

COLUMNS = ("weight", "check", "where", "what", "cure")


def add_doctor(app: typer.Typer) -> None:
    """Declare the command."""
    declare(app, "doctor", "pqbroker doctor ./data")(doctor)


def doctor(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory of a broker that is stopped.")],
    pool: Annotated[
        list[str] | None, typer.Option(metavar="NAME=DIR", help="Where a pool outside the directory lies; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Verify every checksum, reference and invariant of a data directory; say what is wrong, where, and what to do.

    The broker must be stopped. Nothing is changed, whatever is found; exit status 1 means damage.
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
    from pqbroker.broker.doctor.checkup import examine
    from pqbroker.storage.engine import EngineError

    with progress() as shown:
        task = shown.add_task("bytes verified", total=None)
        findings = Findings(lambda size: shown.advance(task, size))
        checking = examine(directory, pools, findings, lambda total: shown.update(task, total=total))
        try:
            with asyncio.Runner() as runner:
                # Not `run`: on Ctrl-C that waits until the task waits, which one that only computes never does.
                runner.get_loop().run_until_complete(checking)
        except EngineError as cannot:
            raise CommandError(str(cannot)) from cannot
        except OSError as failure:
            raise CommandError(f"{directory} cannot be looked at: {failure}; see that it may be read") from failure
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
