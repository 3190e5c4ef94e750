"""`pqbroker crashtest`: kill a broker again and again on the user's own disk, and see that it keeps its word."""

import asyncio
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from pqbroker.broker.cli.cluster import Cluster
from pqbroker.broker.cli.command import declare
from pqbroker.broker.cli.crash_book import Broken, Comparison
from pqbroker.broker.cli.crashing import crash
from pqbroker.broker.cli.doctor import examine_directory
from pqbroker.broker.cli.options import Json
from pqbroker.broker.cli.output import progress, say, show_json
from pqbroker.broker.cli.refusals import CommandError
from pqbroker.broker.cli.topic import create_topic
from pqbroker.testing import Broker, BrokerFailedError

TOPIC = "crashtest"
PARTITIONS = [0, 1, 1]
"""Of each producer: one alone, two together."""


DATA, LOG = "data", "log"
"""What is written into the directory."""


class Verdict(NamedTuple):
    """What a run saw."""

    kills: int
    records: int


def add_crashtest(app: typer.Typer) -> None:
    """Declare the command."""
    declare(app, "crashtest", "pqbroker crashtest --data /mnt/disk/crashtest --minutes 10")(crashtest)


def crashtest(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Empty, or not there; a new one here unless it is given.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.05, max=100_000, metavar="NUMBER", help="How long.")] = 1.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Of moments and records; random unless given.")] = None,
    json: Json = False,
) -> None:
    """Kill a broker of its own with kill -9 under load, over and over, on a disk of yours, and verify every record.

    Every acknowledged record must be there once and in order, no log may end earlier than before, and the directory
    must be healthy. What was written is removed then, and at Ctrl-C; else it stays, and the exit status is 1.
    """
    chosen = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    was_there = data is not None and data.exists()
    directory = _prepare(data)
    try:
        verdict = _run(directory, chosen, minutes)
    except (Broken, BrokerFailedError, CommandError) as broken:
        raise CommandError(f"seed {chosen}: {broken}; see the broker's log and data in {directory}") from broken
    except KeyboardInterrupt:
        _clear(directory, was_there=was_there)
        raise
    _clear(directory, was_there=was_there)
    if json:
        show_json({"seed": chosen, "kills": verdict.kills, "records": verdict.records})
    else:
        told = f"{verdict.kills} kills, {verdict.records} records acknowledged, each there once and in order"
        say(f"seed {chosen}: {told}; the directory was healthy")


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
    """A directory that was there stays, empty: a mount point cannot be removed."""
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
    node = Broker(directory / DATA, {}, log, "info")
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


def _kill_and_verify(node: Broker, seed: int, duration_s: float) -> Verdict:
    from pqbroker.broker.cli.crash_load import AsyncLoad, read_logs

    begin = time.monotonic()
    with progress() as shown:
        task = shown.add_task("killing, seconds", total=round(duration_s))

        def goes_on(kills: int) -> bool:
            passed = time.monotonic() - begin
            shown.update(task, completed=min(round(passed), round(duration_s)), description=f"{kills} kills, seconds")
            return passed < duration_s

        with AsyncLoad(node.kafka, TOPIC, PARTITIONS, seed) as load:
            kills = crash(
                node, load, random.Random(seed),
                goes_on=goes_on, start=node.start, read_ends=lambda: _read_ends(node.kafka),
            )  # fmt: skip
    load.check_failures()
    comparison = Comparison(load.books)
    asyncio.run(read_logs(node.kafka, TOPIC, _read_ends(node.kafka), comparison.take))
    return Verdict(kills, comparison.end())


def _read_ends(address: str) -> dict[int, int]:
    with Cluster(address) as cluster:
        return {partition: span.end for partition, span in cluster.spans(cluster.topic(TOPIC)).items()}
