"""`kill -9` of a broker and its workers under writes of a sorted table: python -m tests.faults.sorted_kills --kills 100

Its stores are small, so that flushes, compactions and partitionings run all the time. Each row that was acknowledged is
read at the timestamp of its commit, no timestamp goes back, and in the end the doctor finds nothing: no orphan piece,
no chunk without a record.
"""

import argparse
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.testing import Broker, broker

WRITERS = 3
KEYS = 300
"""Each writer has this many keys."""
ROWS_MAX = 30
UNDER_LOAD_MAX_S = 0.8
WORKER_SHARE = 0.3
"""Share of the kills that hit workers alone."""
CHECKED = 100
"""Commits that are read back after each kill; all are in the end."""
PATIENCE_S = 60.0
PATH = "/v1/tables/killed"
SETTINGS = {
    "pqbroker.table.backoff.ms": "200", "pqbroker.ballast.bytes": "0", "pqbroker.segment.bytes": str(4 << 20),
}  # fmt: skip
TABLE = {
    "path": "//killed",
    "schema": [
        {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
        {"name": "text", "type": "utf8"}, {"name": "number", "type": "int64"},
    ],
    "pivot_keys": [[], [KEYS], [2 * KEYS]],
    "attributes": {
        "max_dynamic_store_row_count": 200, "min_partition_data_size": 3_000, "desired_partition_data_size": 8_000,
        "max_partition_data_size": 12_000, "min_partitioning_data_size": 2_000,
        "max_overlapping_store_count": 20,  # stores become chunks faster than workers that are killed compact them
    },
}  # fmt: skip


@dataclass(slots=True)
class Written:
    """Acknowledged commits: timestamp, and number by key; None: the rows were deleted."""

    commits: list[tuple[int, dict[int, int | None]]] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def acknowledged(self, above: int, timestamp: int, rows: dict[int, int | None]) -> None:
        with self.guard:
            assert timestamp > above, f"timestamp {timestamp} came after {above}"
            self.commits.append((timestamp, rows))

    @property
    def last(self) -> int:
        with self.guard:
            return max((timestamp for timestamp, _ in self.commits), default=0)

    def some(self, count: int) -> list[tuple[int, dict[int, int | None]]]:
        """Return the last commits, so many at most."""
        with self.guard:
            return self.commits[-count:]


@dataclass(slots=True)
class Outcome:
    """Counts of a run."""

    broker_kills: int = 0
    worker_kills: int = 0
    rows: int = 0
    partitions: int = 0
    """Partitions of all tablets in the end."""


def run(directory: Path, *, kills: int, seed: int) -> Outcome:
    """Kill a broker, or its workers, so often under load. AssertionError when a promise is broken."""
    outcome, written, chance = Outcome(), Written(), random.Random(seed)
    with broker(directory / "data", SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/tables", TABLE)
        with load(node, written, seed):
            for _ in range(kills):
                time.sleep(chance.uniform(0, UNDER_LOAD_MAX_S))
                if chance.random() < WORKER_SHARE:
                    outcome.worker_kills += kill_workers(node.pid)
                else:
                    node.kill()
                    node.start()
                    outcome.broker_kills += 1
                check(calls, written.some(CHECKED))
        check(calls, written.some(len(written.commits)))
        outcome.partitions = partitioned(calls)
    outcome.rows = sum(len(rows) for _, rows in written.commits)
    findings = examine_directory(directory / "data", {}).found
    found = [one for one in findings if (one.check, one.weight) != ("segment", Weight.HARMLESS)]
    assert not found, found
    return outcome


def partitioned(calls: HttpCalls) -> int:
    """Return how many partitions the tablets have once one of them was split, which its chunks call for."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        tablets = calls.ask("GET", f"{PATH}/tablets")["tablets"]
        count = sum(int(tablet["statistics"]["partition_count"]) for tablet in tablets)
        if count > len(tablets) or time.monotonic() > deadline:
            return count
        time.sleep(0.02)


def check(calls: HttpCalls, commits: Sequence[tuple[int, dict[int, int | None]]]) -> None:
    """Read each commit's rows at its timestamp."""
    for timestamp, rows in commits:
        body = {"keys": [{"id": key} for key in rows], "timestamp": timestamp, "columns": ["number"]}
        found = patiently(lambda body=body: calls.ask("POST", f"{PATH}/lookup", body))["rows"]  # type: ignore[misc]
        given = [row and row["number"] for row in found]
        assert given == list(rows.values()), f"commit {timestamp} of {rows} is read as {given}"


def patiently(ask: Callable[[], Any]) -> Any:
    """Ask until the broker serves."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except BrokerRefusedError as refusal:
            if not is_passing(refusal) or time.monotonic() > deadline:
                raise
        except (OSError, HTTPException):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def is_passing(refusal: BrokerRefusedError) -> bool:
    """Return True for a refusal that a start, a lock or compactions that were killed explain: the call is repeated."""
    return refusal.status == 503 or refusal.code in ("TABLET_NOT_OPEN", "WRONG_STATE", "TOO_MANY_OVERLAPPING_STORES")


@contextmanager
def load(node: Broker, written: Written, seed: int) -> Iterator[None]:
    """Write rows until the block ends, over whatever happens to the broker."""
    stopping, calls = threading.Event(), HttpCalls(lambda: node.http)
    with ThreadPoolExecutor(WRITERS) as threads:
        writing = [
            threads.submit(_write, calls, written, stopping, number, random.Random(f"{seed}:{number}"))
            for number in range(WRITERS)
        ]
        try:
            yield
        finally:
            stopping.set()
            for one in writing:
                one.result()


def _write(
    calls: HttpCalls, written: Written, stopping: threading.Event, writer: int, chance: random.Random
) -> None:
    number = 0
    while not stopping.is_set():
        number += 1
        keys = chance.sample(range(writer * KEYS, (writer + 1) * KEYS), chance.randint(1, ROWS_MAX))
        above = written.last
        is_delete = chance.random() < 0.1
        rows = [{"id": key, "number": number, "text": chance.randbytes(20).hex()} for key in keys]
        try:
            if is_delete:
                answer = calls.ask("DELETE", f"{PATH}/rows", {"keys": [{"id": key} for key in keys]})
            else:
                answer = calls.ask("POST", f"{PATH}/rows", {"rows": rows})
        except BrokerRefusedError as refusal:
            if not is_passing(refusal):
                raise
            time.sleep(0.02)
        except (OSError, HTTPException):  # nobody knows: no commit of it is looked for
            time.sleep(0.02)
        else:
            written.acknowledged(above, answer["timestamp"], dict.fromkeys(keys, None if is_delete else number))


def kill_workers(pid: int) -> int:
    """Kill the worker processes of a broker: how many there were."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    threads = [Path(task, "children") for task in Path(f"/proc/{pid}/task").iterdir()]
    found = {*children, *(child for place in threads for child in place.read_text(encoding="ascii").split())}
    for child in found:
        os.kill(int(child), signal.SIGKILL)
    return len(found)


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.sorted_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-kills-") as scratch:
        seen = run(Path(scratch), kills=options.kills, seed=options.seed)
    kills = f"{seen.broker_kills} kills of the broker, {seen.worker_kills} of workers"
    print(f"{kills}: {seen.rows} rows acknowledged and read at their timestamps, nothing left over")


if __name__ == "__main__":
    main()
