"""`pqbroker doctor`: verify a stopped broker's directory, down to the last record; salvage a damaged commit log."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    salvage: Annotated[
        bool,
        option(
            help="Show what a damaged commit log costs: what one bit mends, and what is given up by topic, partition, "
            "offsets, groups, producers, sessions and names. Changes nothing without --perform."
        ),
    ] = False,
    perform: Annotated[bool, option(help="Give up what --salvage shows, so that a broker starts.")] = False,
    accept: Annotated[
        bool, option(help="Let a broker remove, move and compact data again: what --salvage gave up is accepted.")
    ] = False,
) -> None:
    """Verify the data directory of a stopped broker.

    Checks every checksum, reference and invariant and prints what is wrong, where, and what to do. Changes nothing,
    but with --perform and --accept; exit status 1 means damage.
    """
    pools = {name: Path(place) for name, place in assignments("--pool", pool or [], "archive=/mnt/archive").items()}
    if ((perform or accept) and not salvage) or (perform and accept):
        raise CommandError("--perform and --accept are two steps, each of them with --salvage")
    if accept:
        _accept(directory, pools)
        return
    if salvage:
        _salvage(directory, pools, performs=perform, as_json=json)
        return
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
    """Return the findings in a directory. Raises CommandError when it cannot be looked at as a whole."""
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


def _salvage(directory: Path, pools: Mapping[str, Path], *, performs: bool, as_json: bool) -> None:
    from pqbroker.doctor.salvaging.node import salvage_node

    with _usable(directory):
        found = salvage_node(directory, pools, performs=performs)
    losses = [loss._asdict() for loss in found.losses]
    if as_json:
        told = {"directory": str(directory), "damaged": found.is_damaged, "performed": performs and found.is_damaged}
        show_json({**told, "losses": losses})
        return
    if not found.is_damaged:
        say(f"{directory}: there is nothing to salvage in the commit log; `pqbroker doctor` verifies the rest")
        return
    show_table(("kind", "where", "what"), [tuple(loss) for loss in found.losses])
    if performs:
        say(f"{directory}: salvaged; damaged bytes are kept in `damaged`, and nothing is removed from the cell until")
        say("`pqbroker doctor --salvage --accept`. Start the broker, and see that the data is as it should be.")
    else:
        say(f"{directory}: copy it first if there is room; then --salvage --perform gives up what is named here")


def _accept(directory: Path, pools: Mapping[str, Path]) -> None:
    from pqbroker.doctor.salvaging.node import accept_node

    with _usable(directory):
        cells = accept_node(directory, pools)
    say(f"{directory}: accepted" if cells else f"{directory}: there is no salvage to accept")


@contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """Errors of the directory become CommandErrors."""
    from pqbroker.storage.engine import EngineError

    try:
        yield
    except EngineError as cannot:
        raise CommandError(str(cannot)) from cannot
    except OSError as failure:
        raise CommandError(f"{directory} cannot be used: {failure}; see that it may be read and written") from failure


def _tell(directory: Path, findings: Findings) -> None:
    if found := findings.found:
        rows = [(each.weight.value, each.check, each.where, each.what, each.cure) for each in found]
        show_table(COLUMNS, rows)
        left = findings.damages + findings.oddities - len(found)
        if left:
            say(f"and {left} more")
    checked = ", ".join(f"{number} {kind}" for kind, number in findings.seen.items())
    say(f"{directory}: {'damaged' if findings.damages else 'healthy'}; checked {checked}")
