"""`pqbroker crashtest`: kill a broker again and again on the user's own disk, and see that it keeps its word."""

import asyncio
import os
import random
import shutil
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, NamedTuple

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.cli.crashtest.book import Broken, Comparison
from pqbroker.cli.crashtest.kills import crash
from pqbroker.cli.crashtest.members import GroupLoad
from pqbroker.cli.crashtest.transfers import TransferLoad, check_sum, check_transfers, make_tables
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.topics import create_topic
from pqbroker.cli.options import Json
from pqbroker.cli.output import say, show_json
from pqbroker.cli.parsing import option
from pqbroker.cli.progress import Progress
from pqbroker.cli.refusals import CommandError
from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.fixture.process import BrokerFailedError, BrokerProcess

TOPIC = "crashtest"
PARTITIONS = [0, 1, 1]
"""Partitions of each producer: one alone, two together."""


DATA, LOG = "data", "log"
"""Names of what is written into the directory."""


class Verdict(NamedTuple):
    """The kills, records and transfers that a run saw."""

    kills: int
    records: int
    transfers: int | None = None
    """Transactions over tables that were acknowledged; None: what tables need is not installed."""
    commits: int = 0
    """Offsets that members of a group committed, and that were acknowledged."""


app = Family()


@declare(app, "crashtest", "pqbroker crashtest --data /mnt/disk/crashtest --minutes 10")
def crashtest(
    data: Annotated[
        Path | None, option(metavar="DIR", help="Empty or new directory; without it: a new one here.")
    ] = None,
    minutes: Annotated[float, option(least=0.05, most=100_000, metavar="NUMBER", help="Minutes to run.")] = 1.0,
    seed: Annotated[
        int | None, option(metavar="NUMBER", least=0, help="Seed of kills and records; without it: random.")
    ] = None,
    json: Json = False,
) -> None:
    """Kill a broker of its own under load, repeatedly, and verify every record and transaction.

    The kills are kill -9, the disk is yours. Every acknowledged record must exist once and in order, no log may end
    earlier than before, no transfer between two tables may be torn, no member of a group may lose its epoch or a
    committed offset, and the directory must be healthy. Then, and after Ctrl-C, the command removes what it wrote; else
    it keeps that and exits with status 1.
    """
    chosen = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    was_there = data is not None and data.exists()
    directory = _prepare(data)
    try:
        verdict = _run(directory, chosen, minutes)
    except (Broken, BrokerFailedError, BrokerRefusedError, CommandError) as broken:
        raise CommandError(f"seed {chosen}: {broken}; see the broker's log and data in {directory}") from broken
    except KeyboardInterrupt:
        _clear(directory, was_there=was_there)
        raise
    _clear(directory, was_there=was_there)
    if json:
        show_json({"seed": chosen, **verdict._asdict()})
    else:
        told = (
            f"{verdict.kills} kills, {verdict.records} records acknowledged, each there once and in order; "
            f"{verdict.commits} offsets of a group committed, none lost, its members in their epochs"
        )
        moved = "transfers were left out: install pqbroker[tables]"
        if verdict.transfers is not None:
            moved = f"{verdict.transfers} transfers between tables acknowledged, none torn"
        say(f"seed {chosen}: {told}; {moved}; the directory was healthy")


def _prepare(data: Path | None) -> Path:
    """A directory with nothing of anybody's in it."""
    try:
        if data is None:
            return Path(tempfile.mkdtemp(prefix="pqbroker-crashtest-", dir="."))
        data.mkdir(parents=True, exist_ok=True)
        if os.listdir(data):
            raise CommandError(f"{data} is not empty; choose a directory that is, or is not there yet")
    except OSError as failure:
        raise CommandError(f"{data or '.'} cannot be used: {failure.strerror}; choose another with --data") from None
    return data


def _clear(directory: Path, *, was_there: bool) -> None:
    """Empty a directory that existed, and keep it: a mount point cannot be removed."""
    try:
        if (directory / DATA).exists():  # else the run was interrupted before
            shutil.rmtree(directory / DATA)
        (directory / LOG).unlink(missing_ok=True)
        if not was_there:
            directory.rmdir()
    except OSError as failure:
        raise CommandError(f"what was written into {directory} cannot be removed: {failure}; remove it") from failure


def _run(directory: Path, seed: int, minutes: float) -> Verdict:
    """Raises Broken, BrokerFailedError, CommandError."""
    log = directory / LOG
    log.touch()
    node = BrokerProcess(directory / DATA, {}, log, "info")
    try:
        node.start()
        with Cluster(node.kafka) as cluster:
            create_topic(cluster, TOPIC, max(PARTITIONS) + 1, -1, {"retention.ms": "-1"})
            cluster.created(TOPIC)
        verdict = _kill_and_verify(node, seed, minutes * 60)
        node.stop()
    finally:
        node.kill()
    found = examine_directory(directory / DATA, {})
    if found.damages:
        raise Broken(f"the directory is damaged: {found.found[0].what}; `pqbroker doctor` on it says more")
    return verdict


def _kill_and_verify(node: BrokerProcess, seed: int, duration_s: float) -> Verdict:
    from pqbroker.cli.crashtest.load import AsyncLoad, read_logs

    calls = HttpCalls(lambda: node.http)
    transfers = TransferLoad(calls, seed) if make_tables(calls) else None

    def start() -> None:
        node.start()
        if transfers is not None:
            check_sum(calls)

    with Progress("seconds under load", round(duration_s)) as shown:

        def goes_on(kills: int) -> bool:
            passed = time.monotonic() - begin
            shown.what = f"{kills} kills, seconds under load"
            shown.reach(min(round(passed), round(duration_s)))
            return passed < duration_s or not kills

        group = GroupLoad(node.kafka, TOPIC)
        with AsyncLoad(node.kafka, TOPIC, PARTITIONS, seed) as load, group, transfers or nullcontext():
            begin = time.monotonic()
            kills = crash(
                node, load, random.Random(seed),
                goes_on=goes_on, start=start, read_ends=lambda: _read_ends(node.kafka),
            )  # fmt: skip
    load.check_failures()
    comparison = Comparison(load.books)
    asyncio.run(read_logs(node.kafka, TOPIC, _read_ends(node.kafka), comparison.take))
    moved = None if transfers is None else check_transfers(calls, transfers)
    return Verdict(kills, comparison.end(), moved, group.check())


def _read_ends(address: str) -> dict[int, int]:
    with Cluster(address) as cluster:
        return {partition: span.end for partition, span in cluster.spans(cluster.topic(TOPIC)).items()}
