"""Transfers between accounts as transactions, under `kill -9`: python -m tests.faults.transfers --kills 200

Accounts lie in two sorted tables in two cells, an ordered table in a third place has a row of each transfer. A
transfer reads two accounts at its start, and commits both and its row. Whatever happens to the broker: all balances add
up to the same sum in each SQL snapshot; each transfer that was acknowledged has one row, none that was refused has any;
and in the end the rows explain the balances. A Kafka consumer that follows the ordered table's topic over all kills has
read the same transfers, each once, and its records explain the balances too. A row that was locked by a commit is free
again within seconds of a start.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from json import loads
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.testing import Broker, broker
from tests.faults.killed_load import check_directory, run_from_command_line, under_load
from tests.faults.sorted_kills import is_passing, patiently
from tests.support.waiting import wait_until

CLIENTS = 4
ACCOUNTS = 12
"""Accounts of each of the two tables."""
FIRST_BALANCE = 1000
UNDER_LOAD_MAX_S = 0.6
PATIENCE_S = 60.0
FREE_S = 10.0
"""Seconds in which a lock that a start has found ends: 5, and those of a machine that does other things too."""
LOCKED = frozenset(("ROW_LOCK_CONFLICT", "ROW_LOCKED"))
SETTINGS = {
    "pqbroker.table.backoff.ms": "200", "pqbroker.ballast.bytes": "0", "pqbroker.segment.bytes": str(4 << 20),
    "pqbroker.cells.max": "10",
}  # fmt: skip
ACCOUNT_TABLES = ("left", "right")
LOG = "transfers"
LOG_TABLETS = 2
ATTRIBUTES = {"max_dynamic_store_row_count": 100, "max_overlapping_store_count": 100}
SETTLED = frozenset(
    ("NO_TRANSACTION", "TRANSACTION_ENDED", "ROW_LOCK_CONFLICT", "COMMIT_TOO_SLOW", "TIMESTAMP_TOO_OLD")
)
"""Refusals after which a transaction is not committed, and never will be."""


@dataclass(slots=True)
class Transfers:
    """Transfers by their end."""

    acknowledged: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    conflicts: int = 0
    repeated: int = 0
    """Commits whose answer was lost, and that were sent again."""
    guard: threading.Lock = field(default_factory=threading.Lock)

    def end(self, name: str, *, is_committed: bool) -> None:
        with self.guard:
            (self.acknowledged if is_committed else self.refused).add(name)


def run(directory: Path, *, kills: int, seed: int) -> Transfers:
    """Kill a broker `kills` times while clients transfer. AssertionError when a promise is broken."""
    ended, chance = Transfers(), random.Random(seed)
    with broker(directory / "data", SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        make_tables(calls)
        with follow(node) as log, load(node, ended, seed):
            for _ in range(kills):
                time.sleep(chance.uniform(0.05, UNDER_LOAD_MAX_S))
                node.kill()
                node.start()
                check_free(calls, chance)
                check_sum(calls)
            wait_until(lambda: len(ended.acknowledged) > kills, "transfers", PATIENCE_S)
        check_sum(calls)
        check_end(calls, ended)
        log.check(calls, ended)
    check_directory(directory / "data")
    return ended


def make_tables(calls: HttpCalls) -> None:
    """Make the tables, each in a cell of its own, and give every account its first balance."""
    account = [
        {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
        {"name": "balance", "type": "int64"},
    ]
    for name in ACCOUNT_TABLES:
        calls.ask("POST", "/v1/bundles", {"name": name})
        calls.ask("POST", "/v1/cells", {"bundle": name})
        pivots = [[], [ACCOUNTS // 2]]
        body = {"path": f"//{name}", "schema": account, "bundle": name, "pivot_keys": pivots, "attributes": ATTRIBUTES}
        calls.ask("POST", "/v1/tables", body)
        rows = [{"id": number, "balance": FIRST_BALANCE} for number in range(ACCOUNTS)]
        calls.ask("POST", f"/v1/tables/{name}/rows", {"rows": rows})
    log = [{"name": name, "type": kind} for name, kind in (("transfer", "utf8"), ("moves", "any"))]
    calls.ask("POST", "/v1/tables", {"path": f"//{LOG}", "schema": log, "tablet_count": LOG_TABLETS})


def check_sum(calls: HttpCalls) -> None:
    """Every snapshot has the same sum."""
    query = 'SELECT (SELECT sum(balance) FROM "left") + (SELECT sum(balance) FROM "right") AS total'
    found = patiently(lambda: _rows(calls, query))
    assert found == [{"total": 2 * ACCOUNTS * FIRST_BALANCE}], found


def check_free(calls: HttpCalls, chance: random.Random) -> None:
    """Each account can be written within seconds: locks of commits that the kill cut short are gone."""
    until, locked_until = time.monotonic() + PATIENCE_S, 0.0
    name, account = chance.choice(ACCOUNT_TABLES), chance.randrange(ACCOUNTS)
    while True:
        begun = time.monotonic()
        try:
            calls.ask("POST", f"/v1/tables/{name}/rows?update=true", {"rows": [{"id": account}]})
        except BrokerRefusedError as refusal:
            if refusal.code in LOCKED:
                locked_until = locked_until or begun + FREE_S
                until = locked_until
            if begun > until:
                raise AssertionError(f"account {account} of {name} is not free") from refusal
            time.sleep(0.02)
        else:
            return


def check_end(calls: HttpCalls, ended: Transfers) -> None:
    """The rows of the transfers are those that were acknowledged, and explain every balance."""
    _check_moves(calls, ended, _rows(calls, f"SELECT transfer, moves FROM {LOG}"))


def _check_moves(calls: HttpCalls, ended: Transfers, rows: Sequence[dict[str, Any]]) -> None:
    counts = Counter(row["transfer"] for row in rows)
    assert not (doubled := [name for name, count in counts.items() if count > 1]), doubled
    assert not (lost := ended.acknowledged - counts.keys()), lost
    assert not (undead := ended.refused & counts.keys()), undead
    expected = {(name, number): FIRST_BALANCE for name in ACCOUNT_TABLES for number in range(ACCOUNTS)}
    for row in rows:
        moves = row["moves"] if isinstance(row["moves"], list) else loads(row["moves"])
        for name, number, amount in moves:
            expected[name, number] += amount
    for name in ACCOUNT_TABLES:
        found = {row["id"]: row["balance"] for row in _rows(calls, f'SELECT id, balance FROM "{name}"')}
        assert found == {number: expected[name, number] for number in range(ACCOUNTS)}, name


class FollowedLog:
    """The records of the transfers' topic, as a Kafka consumer has read them by and by."""

    def __init__(self, address: str) -> None:
        self._rows: list[dict[str, Any]] = []
        self._positions = dict.fromkeys(range(LOG_TABLETS), 0)
        settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
        settings |= {"reconnect.backoff.max.ms": 200, "isolation.level": "read_committed", "auto.offset.reset": "error"}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(LOG, partition, 0) for partition in self._positions])

    def read(self, stopping: threading.Event) -> None:
        """Read until the event is set, and then to the end of each partition."""
        while not stopping.is_set():
            self._take(0.2)
        until = time.monotonic() + PATIENCE_S
        while any(position < self._end_of(partition) for partition, position in self._positions.items()):
            assert time.monotonic() < until, f"the consumer stays at {self._positions}"
            self._take(1.0)
        self._consumer.close()

    def check(self, calls: HttpCalls, ended: Transfers) -> None:
        """The records are the transfers that were acknowledged, and explain every balance."""
        for row in self._rows:
            assert sum(amount for _, _, amount in row["moves"]) == 0, row
        _check_moves(calls, ended, self._rows)

    def _take(self, timeout_s: float) -> None:
        for record in self._consumer.consume(500, timeout_s):
            error, partition, offset = record.error(), record.partition(), record.offset()
            if error is not None:
                assert error.retriable() or error.code() < 0, error  # the broker is killed, and starts again
                continue
            assert partition is not None
            assert offset is not None
            assert offset == self._positions[partition], f"{offset} where {self._positions[partition]} was due"
            self._positions[partition] = offset + 1
            self._rows.append(loads(record.value() or b""))

    def _end_of(self, partition: int) -> int:
        return int(self._consumer.get_watermark_offsets(TopicPartition(LOG, partition), PATIENCE_S)[1])


@contextmanager
def follow(node: Broker) -> Iterator[FollowedLog]:
    """Have a consumer read the log of transfers while the block runs; what it has read is whole after the block."""
    log = FollowedLog(node.kafka)
    with under_load([log.read]):
        yield log


def _rows(calls: HttpCalls, query: str) -> list[dict[str, Any]]:
    """Return the rows of a query, all in one line of its answer."""
    whole = f"SELECT to_json(list(found))::VARCHAR AS found FROM ({query}) AS found"
    found: list[dict[str, Any]] = loads(calls.ask("POST", "/v1/sql", {"query": whole})["found"])
    return found


def load(node: Broker, ended: Transfers, seed: int) -> AbstractContextManager[None]:
    """Transfer until the block ends, over whatever happens to the broker."""
    calls = HttpCalls(lambda: node.http)
    chances = [random.Random(f"{seed}:{number}") for number in range(CLIENTS)]
    return under_load([partial(_transfer_on, calls, ended, chance) for chance in chances])


def _transfer_on(calls: HttpCalls, ended: Transfers, chance: random.Random, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            name, writes = _begin(calls, chance)
        except BrokerRefusedError as refusal:
            if not (is_passing(refusal) or refusal.code in SETTLED):
                raise
            time.sleep(0.02)
        except (OSError, HTTPException):
            time.sleep(0.02)
        else:
            _commit(calls, ended, name, writes)


def _begin(calls: HttpCalls, chance: random.Random) -> tuple[str, Sequence[dict[str, Any]]]:
    """Start a transfer and read two accounts: its name and its writes."""
    name = calls.ask("POST", "/v1/transactions", {"timeout_ms": 30_000})["transaction"]
    every = [(table, number) for table in ACCOUNT_TABLES for number in range(ACCOUNTS)]
    some = chance.sample(every, 2)
    amount = chance.randint(1, 100)
    moves = [[*some[0], -amount], [*some[1], amount]]
    writes: list[dict[str, Any]] = []
    for table, number, change in moves:
        body = {"keys": [{"id": number}], "transaction": name}
        (row,) = calls.ask("POST", f"/v1/tables/{table}/lookup", body)["rows"]
        writes.append({"table": table, "rows": [{"id": number, "balance": row["balance"] + change}]})
    writes.append({"table": LOG, "rows": [{"transfer": name, "moves": moves}]})
    return name, writes


def _commit(calls: HttpCalls, ended: Transfers, name: str, writes: Sequence[dict[str, Any]]) -> None:
    """Commit until it is known what became of it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            calls.ask("POST", f"/v1/transactions/{name}/commit", {"writes": writes})
        except BrokerRefusedError as refusal:
            if refusal.code in SETTLED:
                ended.conflicts += refusal.code == "ROW_LOCK_CONFLICT"
                ended.end(name, is_committed=False)
                return
            if time.monotonic() > deadline or not (is_passing(refusal) or refusal.code == "COMMIT_UNKNOWN"):
                raise
        except (OSError, HTTPException):
            if time.monotonic() > deadline:
                raise
        else:
            ended.end(name, is_committed=True)
            return
        ended.repeated += 1
        time.sleep(0.02)




def main() -> None:
    kills, ended = run_from_command_line(
        __doc__, 200, lambda directory, kills, seed: run(directory, kills=kills, seed=seed)
    )
    print(
        f"{kills} kills: {len(ended.acknowledged)} transfers acknowledged, {len(ended.refused)} refused, "
        f"{ended.conflicts} of these by conflicts, {ended.repeated} commits sent again; none torn, lost or doubled"
    )


if __name__ == "__main__":
    main()
