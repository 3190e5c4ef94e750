"""One transaction over everything, under `kill -9`: python -m tests.faults.joined_kills --kills 100

Each transaction has a record in two partitions of a topic and a row in a sorted table of one cell, a row in a sorted
table of another cell, a row of an ordered table in the system cell, and the offset of a group. Records come from a
producer of librdkafka with a transactional id of its client. Whatever happens to the broker: a transaction that was
acknowledged has all of it once, one that was refused has nothing of it, and each group's offset is its last one.
"""

import random
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.testing import Broker, broker
from tests.faults.killed_load import check_directory, run_from_command_line, under_load
from tests.faults.sorted_kills import is_passing, patiently
from tests.faults.transfers import SETTINGS, SETTLED
from tests.support.waiting import wait_until

CLIENTS = 2
PARTITIONS = 2
UNDER_LOAD_MAX_S = 1.5
PATIENCE_S = 60.0
KAFKA_S = 5.0
"""Seconds that a call of the producer may take; one that takes longer is given up, and the producer with it."""
TOPIC = "notices"
KAFKAS_REFUSALS = frozenset(("PRODUCER_FENCED", "INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH"))
_PAUSE_S = 0.02


@dataclass(slots=True)
class Ends:
    """Transactions by their end: client and number."""

    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    refused: set[tuple[int, int]] = field(default_factory=set)
    repeated: int = 0
    """Commits that were sent again, since their answer was lost."""


def run(directory: Path, *, kills: int, seed: int) -> Ends:
    """Kill a broker `kills` times while clients commit. AssertionError when a promise is broken."""
    ends, chance = Ends(), random.Random(seed)
    with broker(directory / "data", SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        make_all(calls)
        with load(node, ends):
            for _ in range(kills):
                time.sleep(chance.uniform(0.1, UNDER_LOAD_MAX_S))
                node.kill()
                node.start()
            wait_until(lambda: len(ends.acknowledged) > kills, "transactions", PATIENCE_S)
        check(node, calls, ends)
    check_directory(directory / "data")
    return ends


def make_all(calls: HttpCalls) -> None:
    """Make a topic and a sorted table in one cell, a sorted table in another, and an ordered table."""
    sorted_by = {"name": "id", "type": "utf8", "sort_order": "ascending"}
    for name in ("left", "right"):
        calls.ask("POST", "/v1/bundles", {"name": name})
        calls.ask("POST", "/v1/cells", {"bundle": name})
        schema = [sorted_by, {"name": "number", "type": "int64"}]
        calls.ask("POST", "/v1/tables", {"path": f"//{name}", "schema": schema, "bundle": name})
    calls.ask("POST", "/v1/tables", {"path": "//log", "schema": [{"name": "id", "type": "utf8"}]})
    calls.ask("POST", "/v1/topics", {"name": TOPIC, "partitions": PARTITIONS, "config": {"pq.bundle": "left"}})


def load(node: Broker, ends: Ends) -> AbstractContextManager[None]:
    """Commit until the block ends, over whatever happens to the broker."""
    return under_load([_Client(node, ends, number).run for number in range(CLIENTS)])


class _Client:
    """One client: a producer, and calls over HTTP."""

    def __init__(self, node: Broker, ends: Ends, number: int) -> None:
        self._node = node
        self._ends = ends
        self._number = number
        self._calls = HttpCalls(lambda: node.http)
        self._producer: Producer | None = None

    def run(self, stopping: threading.Event) -> None:
        step = 0
        while not stopping.is_set():
            try:
                producer = self._begun(step)
                name = self._calls.ask("POST", "/v1/transactions", {"transactional_id": self._id})["transaction"]
            except BrokerRefusedError as refusal:
                if not is_passing(refusal) and refusal.code != "TRANSACTIONAL_ID_NOT_FOUND":
                    raise
                self._producer = None
            except (KafkaException, OSError, HTTPException):
                self._producer = None
                time.sleep(_PAUSE_S)
            else:
                self._end(producer, step, is_commit=self._commit(name, step))
                step += 1
        if self._producer is None:  # a transaction that is left open would hide what comes behind it
            patiently(self._initialised)

    @property
    def _id(self) -> str:
        return f"client-{self._number}"

    def _initialised(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._node.kafka, "transactional.id": self._id, "reconnect.backoff.max.ms": 200,
                "socket.timeout.ms": 5_000, "log_level": 0, "transaction.timeout.ms": 20_000,
            }
        )  # fmt: skip
        try:
            producer.init_transactions(PATIENCE_S)
        except KafkaException as failure:
            raise OSError(str(failure)) from failure
        return producer

    def _begun(self, step: int) -> Producer:
        """Return the producer, whose open transaction has the records of a step. KafkaException, OSError."""
        if self._producer is None:
            self._producer = self._initialised()
        producer, failures = self._producer, list[Any]()
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            value = f"{self._number}:{step}".encode()
            producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, _: failures.append(error))
        left = producer.flush(KAFKA_S)
        if left or any(failures):
            raise OSError(f"{left} records are not delivered: {failures}")
        return producer

    def _commit(self, name: str, step: int) -> bool:
        """Commit until it is known what became of the transaction; True: it is committed."""
        row = f"{self._number}:{step}"
        writes = [{"table": table, "rows": [{"id": row, "number": step}]} for table in ("left", "right")]
        writes.append({"table": "log", "rows": [{"id": row}]})
        offset = {"group": self._id, "topic": TOPIC, "partition": 0, "offset": step}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._calls.ask("POST", f"/v1/transactions/{name}/commit", {"writes": writes, "offsets": [offset]})
            except BrokerRefusedError as refusal:
                if refusal.code in SETTLED or refusal.code in KAFKAS_REFUSALS:
                    self._ends.refused.add((self._number, step))
                    return False
                if time.monotonic() > deadline or not (is_passing(refusal) or refusal.code == "COMMIT_UNKNOWN"):
                    raise
            except (OSError, HTTPException):
                if time.monotonic() > deadline:
                    raise
            else:
                self._ends.acknowledged.add((self._number, step))
                return True
            self._ends.repeated += 1
            time.sleep(_PAUSE_S)

    def _end(self, producer: Producer, step: int, *, is_commit: bool) -> None:
        """Have the producer learn the end, or have another one take its place."""
        try:
            if is_commit:
                producer.commit_transaction(KAFKA_S)
            else:
                producer.abort_transaction(KAFKA_S)
        except KafkaException:
            self._producer = None


def check(node: Broker, calls: HttpCalls, ends: Ends) -> None:
    """Each transaction is there whole or not at all; and each group has the offset of its last one."""
    committed = {f"{number}:{step}" for number, step in ends.acknowledged}
    for table in ("left", "right", "log"):
        rows = patiently(lambda table=table: _ids(calls, table))  # type: ignore[misc]
        assert Counter(rows) == Counter(committed), (table, Counter(rows) - Counter(committed))
    for partition in range(PARTITIONS):
        values = Counter(_values(node, partition))
        assert values == Counter(committed), (partition, values - Counter(committed), Counter(committed) - values)
    for number in range(CLIENTS):
        last = max((step for client, step in ends.acknowledged if client == number), default=-1001)
        assert _offset(node, f"client-{number}") == last


def _ids(calls: HttpCalls, table: str) -> list[str]:
    whole = f"SELECT to_json(list(id))::VARCHAR AS found FROM \"{table}\""
    found = calls.ask("POST", "/v1/sql", {"query": whole})["found"]
    return [] if found is None else [text.strip('"') for text in found.strip("[]").split(",") if text]


def _consumer(node: Broker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": node.kafka, "group.id": group, "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip


def _values(node: Broker, partition: int) -> list[str]:
    """Return the values that a reader of committed records sees; no transaction is open by now."""
    consumer = _consumer(node, "checker")
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    values: list[str] = []
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        values.append((message.value() or b"").decode())
    consumer.close()
    return values


def _offset(node: Broker, group: str) -> int:
    consumer = _consumer(node, group)
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)
    consumer.close()
    return int(found.offset)


def main() -> None:
    kills, ends = run_from_command_line(
        __doc__, 100, lambda directory, kills, seed: run(directory, kills=kills, seed=seed)
    )
    print(
        f"{kills} kills: {len(ends.acknowledged)} transactions acknowledged, {len(ends.refused)} refused, "
        f"{ends.repeated} commits sent again; none torn, lost or doubled"
    )


if __name__ == "__main__":
    main()
