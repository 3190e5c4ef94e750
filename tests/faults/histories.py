"""Histories of transactions under kills and moves, checked: python -m tests.faults.histories --seconds 60

Clients read and write the rows of three sorted tables and append to an ordered one, in transactions and without, while
tablets move between three cells, are remounted and flushed, and the broker is killed. All that they did and saw is a
history, in which tests/histories finds nothing that breaks a promise. Longer runs are rounds of a minute, each with a
broker of its own.
"""

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.client import Client, ClientError, Column, Transaction
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.testing import Broker, broker
from tests.histories.checker import check
from tests.histories.history import Access, Ending, Recorded

CLIENTS = 4
TABLES = ("left", "right", "third")
LOG = "log"
TABLETS = 2
KEYS = 6
"""Keys of each sorted table."""
CELLS = 3
ROUND_S = 60.0
PATIENCE_S = 60.0
CLIENT_TIMEOUT_S = 20.0
CALM_S = (0.1, 0.6)
"""Seconds between disturbances."""
KILL_SHARE = 0.1
WITHOUT_BROKER_S = 0.1
"""Seconds between tries of a client while no broker is there."""
SQL_SHARE = 0.1
DELETE_SHARE = 0.1
SETTINGS = {
    "pqbroker.table.backoff.ms": "200", "pqbroker.ballast.bytes": "0", "pqbroker.segment.bytes": str(4 << 20),
    "pqbroker.cells.max": "10",
}  # fmt: skip
ATTRIBUTES = {"max_dynamic_store_row_count": 50, "max_overlapping_store_count": 100}
REFUSED = frozenset((
    "NO_TRANSACTION", "TRANSACTION_ENDED", "ROW_LOCK_CONFLICT", "COMMIT_TOO_SLOW", "TIMESTAMP_TOO_OLD",
    "TRANSACTIONS_PAUSED", "WRONG_STATE",
))  # fmt: skip
"""Refusals after which a transaction is not committed, and never will be."""
UNSENT = "NO_BROKER"


class Place(NamedTuple):
    """The register of one row: of a sorted table by its key, of the ordered one by its only value."""

    table: str
    row: int


@dataclass(slots=True)
class Notes:
    """The history as it is recorded by many clients."""

    history: list[Recorded] = field(default_factory=list)
    _moments: "count[int]" = field(default_factory=count)
    _values: "count[int]" = field(default_factory=lambda: count(1))

    def moment(self) -> int:
        return next(self._moments)

    def value(self) -> int:
        """Return one that nobody else writes."""
        return next(self._values)


@dataclass(slots=True)
class RunCounts:
    """Counts of a run."""

    kills: int = 0
    changes: int = 0
    """Moves, remounts and flushes that were performed."""
    ending: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    reads: int = 0

    def add(self, history: Sequence[Recorded]) -> None:
        for one in history:
            self.ending[one.ending] += 1
            self.reads += len(one.reads)


def run(directory: Path, *, seconds: float, seed: int) -> RunCounts:
    """Run as many rounds as fit. AssertionError when a promise is broken."""
    counts, number, left_s = RunCounts(), 0, seconds
    while left_s > 0:
        _run_round(directory / f"round-{number}", min(left_s, ROUND_S), f"{seed}:{number}", counts)
        left_s -= ROUND_S
        number += 1
    return counts


def _run_round(data: Path, seconds: float, seed: str, counts: RunCounts) -> None:
    notes, chance = Notes(), random.Random(seed)
    with broker(data, SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        _make_tables(calls, node.http)
        with _load(node, notes, seed):
            _disturb(node, calls, chance, time.monotonic() + seconds, counts)
        _serve_all(calls)
        _read_all(node.http, notes)
    counts.add(notes.history)
    found = check(notes.history)
    assert not found, "\n".join([f"seed {seed}: {len(found)} anomalies", *_explained(found[:5], notes.history)])
    findings = examine_directory(data, {}).found
    left = [one for one in findings if (one.check, one.weight) != ("segment", Weight.HARMLESS)]
    assert not left, left


def _explained(found: Sequence[Any], history: Sequence[Recorded]) -> Iterator[str]:
    for one in found:
        yield str(one)
        yield from (f"    {number}: {history[number]}" for number in one.transactions)


def _make_tables(calls: HttpCalls, address: str) -> None:
    for _ in range(CELLS - 1):
        calls.ask("POST", "/v1/cells", {"bundle": "default"})
    columns = [Column("id", "int64", is_required=True, sort_order="ascending"), Column("value", "int64")]
    with Client(address) as client:
        for name in TABLES:
            pivots = [[], [KEYS // 2]]
            client.table(name).create(columns, pivot_keys=pivots, attributes=ATTRIBUTES)
        client.table(LOG).create([Column("value", "int64")], tablet_count=TABLETS)
    for number, name in enumerate((*TABLES, LOG)):
        calls.ask("POST", f"/v1/tables/{name}/mount", {"cell_id": str(number % CELLS)})


# Disturbances


def _disturb(node: Broker, calls: HttpCalls, chance: random.Random, until: float, counts: RunCounts) -> None:
    """Kill the broker, and change its tables, again and again."""
    changes = (_move, _move, _remount, _flush)
    while time.monotonic() < until:
        time.sleep(chance.uniform(*CALM_S))
        if chance.random() < KILL_SHARE:
            node.kill()
            node.start()
            counts.kills += 1
            continue
        name, index = chance.choice((*TABLES, LOG)), chance.randrange(TABLETS)
        tablets = {"first_tablet_index": index, "last_tablet_index": index}
        with suppress(BrokerRefusedError, OSError, HTTPException):
            chance.choice(changes)(calls, f"/v1/tables/{name}", tablets, chance)
            counts.changes += 1


def _move(calls: HttpCalls, path: str, tablets: dict[str, Any], chance: random.Random) -> None:
    calls.ask("POST", f"{path}/mount", {**tablets, "cell_id": str(chance.randrange(CELLS))})


def _remount(calls: HttpCalls, path: str, tablets: dict[str, Any], chance: random.Random) -> None:
    is_forced = chance.random() < 0.3
    calls.ask("POST", f"{path}/unmount", {**tablets, "force": is_forced})
    calls.ask("POST", f"{path}/mount", tablets)


def _flush(calls: HttpCalls, path: str, tablets: dict[str, Any], chance: random.Random) -> None:
    calls.ask("POST", f"{path}/freeze", tablets)
    calls.ask("POST", f"{path}/unfreeze", tablets)


def _serve_all(calls: HttpCalls) -> None:
    """Have all tablets mounted, which a refusal amid a change may have left otherwise."""
    for name in (*TABLES, LOG):
        for index in range(TABLETS):
            tablets = {"first_tablet_index": index, "last_tablet_index": index}
            for verb in ("unfreeze", "mount"):
                with suppress(BrokerRefusedError):
                    calls.ask("POST", f"/v1/tables/{name}/{verb}", tablets)


# Clients


@contextmanager
def _load(node: Broker, notes: Notes, seed: str) -> Iterator[None]:
    """Have clients at work until the block ends, over whatever happens to the broker."""
    stopping = threading.Event()

    def work(session: int) -> None:
        with Client(node.http, timeout_s=CLIENT_TIMEOUT_S) as client:
            one = _Session(client, notes, random.Random(f"{seed}:{session}"), session)
            while not stopping.is_set():
                one.act()

    with ThreadPoolExecutor(CLIENTS) as threads:
        working = [threads.submit(work, session) for session in range(CLIENTS)]
        try:
            yield
        finally:
            stopping.set()
            for each in working:
                each.result()


class _Session:
    """One client, which does one thing after another."""

    def __init__(self, client: Client, notes: Notes, chance: random.Random, session: int) -> None:
        self._client = client
        self._notes = notes
        self._chance = chance
        self._session = session

    def act(self) -> None:
        """One transaction, or a write without one; nothing while no broker is there."""
        if self._chance.random() < 0.2:
            self._write()
        else:
            self._transact()

    def _transact(self) -> None:
        invoked, reads = self._notes.moment(), list[Access]()
        transaction = self._client.transaction(timeout_ms=30_000)
        try:
            transaction.__enter__()
            places = self._places(self._chance.randint(1, 5))
            reads = self._read(transaction, places)
            writes = self._keep(transaction, places)
            ending, commit = self._commit(transaction)
        except ClientError:
            with suppress(ClientError):
                transaction.abort()
            if reads:  # they were read, whatever became of it
                self._note(reads, (), Ending.FAIL, invoked, (transaction.start_timestamp, None))
            time.sleep(WITHOUT_BROKER_S)
            return
        self._note(reads, writes, ending, invoked, (transaction.start_timestamp, commit if writes else None))

    def _places(self, most: int) -> list[Place]:
        every = [Place(table, row) for table in TABLES for row in range(KEYS)]
        return self._chance.sample(every, most)

    def _read(self, transaction: Transaction, places: Sequence[Place]) -> list[Access]:
        by_table = {table: [place.row for place in places if place.table == table] for table in TABLES}
        asked = {table: rows for table, rows in by_table.items() if rows}
        read = _read_by_sql if self._chance.random() < SQL_SHARE else _read_by_lookups
        found = read(transaction, asked)
        return [Access(place, found.get(place)) for place in places]

    def _keep(self, transaction: Transaction, places: Sequence[Place]) -> list[Access]:
        """Write what was read, some of it and other rows, or nothing."""
        kind = self._chance.random()
        if kind < 0.15:
            return []
        written = list(places) if kind < 0.5 else self._places(self._chance.randint(1, 5))
        writes: list[Access] = []
        for place in written:
            how = self._chance.random()
            value = None if how < DELETE_SHARE else self._notes.value()
            writes.append(Access(place, value))
            if value is None:
                transaction.delete(place.table, [{"id": place.row}])
            elif how < 0.5:
                transaction.insert(place.table, [{"id": place.row, "value": value}])
            else:
                transaction.update(place.table, [{"id": place.row, "value": value}])
        if self._chance.random() < 0.4:
            value = self._notes.value()
            transaction.insert(LOG, [{"value": value, "$tablet_index": self._chance.randrange(TABLETS)}])
            writes.append(Access(Place(LOG, value), value))
        return writes

    def _commit(self, transaction: Transaction) -> tuple[Ending, int | None]:
        """Commit until it is known what became of it; or abort."""
        if self._chance.random() < 0.05:
            with suppress(ClientError):
                transaction.abort()
            return Ending.FAIL, None
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                transaction.commit()
            except ClientError as failure:
                if failure.code in REFUSED:
                    return Ending.FAIL, None
                if time.monotonic() > until:
                    return Ending.UNKNOWN, None
                time.sleep(WITHOUT_BROKER_S)
            else:
                return Ending.OK, transaction.timestamp

    def _write(self) -> None:
        """Write rows of one table without a transaction."""
        invoked, first = self._notes.moment(), self._places(1)[0]
        rows = self._chance.sample(range(KEYS), self._chance.randint(1, 3))
        is_delete, table = self._chance.random() < DELETE_SHARE / 2, self._client.table(first.table)
        writes = [Access(Place(first.table, row), None if is_delete else self._notes.value()) for row in rows]
        commit: int | None = None
        try:
            if is_delete:
                commit = table.delete_rows([{"id": row} for row in rows]).timestamp
            else:
                given = [{"id": row, "value": write.value} for row, write in zip(rows, writes, strict=True)]
                commit = table.insert(given, update=self._chance.random() < 0.5).timestamp
        except ClientError as failure:
            is_refused = failure.code == UNSENT or (failure.status is not None and failure.status < 500)
            self._note((), writes, Ending.FAIL if is_refused else Ending.UNKNOWN, invoked, (None, None))
            time.sleep(WITHOUT_BROKER_S)
        else:
            self._note((), writes, Ending.OK, invoked, (None, commit))

    def _note(
        self, reads: Sequence[Access], writes: Sequence[Access], ending: Ending, invoked: int,
        at: tuple[int | None, int | None],
    ) -> None:
        completed = self._notes.moment()
        self._notes.history.append(Recorded(reads, writes, ending, invoked, completed, *at, self._session))


def _read_by_lookups(transaction: Transaction, asked: dict[str, list[int]]) -> dict[Place, int | None]:
    found: dict[Place, int | None] = {}
    for table, ids in asked.items():
        rows = transaction.lookup(table, [{"id": one} for one in ids])
        found |= {Place(table, one): row["value"] if row else None for one, row in zip(ids, rows, strict=True)}
    return found


def _read_by_sql(transaction: Transaction, asked: dict[str, list[int]]) -> dict[Place, int | None]:
    query = " UNION ALL ".join(
        f"""SELECT '{table}' AS name, id, value FROM "{table}" WHERE id IN ({", ".join(map(str, ids))})"""
        for table, ids in asked.items()
    )
    return {Place(row["name"], row["id"]): row["value"] for row in transaction.sql(query).rows()}


def _read_all(address: str, notes: Notes) -> None:
    """Read every row in the end, as one transaction more."""
    with Client(address) as client:
        logged = [
            row["value"] for tablet in range(TABLETS)
            for row in _patiently(lambda tablet=tablet: list(client.table(LOG).rows(tablet)))  # type: ignore[misc]
        ]  # fmt: skip
        assert len(logged) == len(set(logged)), "rows of the ordered table are doubled"
        invoked = notes.moment()
        start, found = _patiently(lambda: _looked_up(client))
    sent = [write.key for one in notes.history for write in one.writes]
    reads = [Access(place, value) for place, value in found.items()]
    there = set(logged)
    for place in sent:
        assert isinstance(place, Place)
        if place.table == LOG:
            reads.append(Access(place, place.row if place.row in there else None))
    unsent = there - {place.row for place in sent if isinstance(place, Place) and place.table == LOG}
    assert not unsent, f"the ordered table has {unsent}, which nobody wrote"
    notes.history.append(Recorded(reads, (), Ending.OK, invoked, notes.moment(), start))


def _looked_up(client: Client) -> tuple[int, dict[Place, int | None]]:
    with client.transaction() as transaction:
        found = _read_by_lookups(transaction, {table: list(range(KEYS)) for table in TABLES})
        return transaction.start_timestamp, found


def _patiently(ask: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except ClientError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.histories", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-histories-") as scratch:
        seen = run(Path(scratch), seconds=options.seconds, seed=options.seed)
    print(
        f"{seen.ending[Ending.OK]} transactions and writes acknowledged, {seen.ending[Ending.FAIL]} refused or aborted,"
        f" {seen.ending[Ending.UNKNOWN]} in doubt, {seen.reads} reads, under {seen.kills} kills and"
        f" {seen.changes} moves, remounts and flushes: no anomaly (seed {options.seed})"
    )


if __name__ == "__main__":
    main()
