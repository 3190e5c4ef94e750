"""kill -9 of a broker, and of its workers, while a topic feeds a sorted table: in the end each key has the topic's last
value, and every record was counted once, as the dead letters show."""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.faults.sorted_kills import kill_workers, patiently

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "3"))
KEYS = 400
PARTITIONS = 3
RECORDS = 8_000
"""Records of each round."""
SETTINGS = {"pqbroker.table.backoff.ms": "200", "pqbroker.ballast.bytes": "0"}
TABLE: dict[str, Any] = {
    "path": "//latest",
    "schema": [
        {"name": "key", "type": "utf8", "sort_order": "ascending", "required": True},
        {"name": "value", "type": "utf8"}, {"name": "at", "type": "int64"},
    ],
    "pivot_keys": [[], ["key-150"], ["key-300"]],
    "attributes": {"max_dynamic_store_row_count": 2_000},
}  # fmt: skip
ORIGINS = {"key": "key", "value": "value", "at": "$row_index"}


class Truth:
    """The last value and offset of each key, and the records that are no rows."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[str, int] | None] = {}
        self.dead = 0

    async def produce(self, node: Broker, dice: random.Random, count: int) -> None:
        """Records of many keys, updates and tombstones among them, and some without a key."""
        producer = AIOKafkaProducer(bootstrap_servers=node.kafka, linger_ms=5)
        await producer.start()
        try:
            sent = []
            for number in range(count):
                key = None if dice.random() < 0.01 else f"key-{dice.randrange(KEYS):03}"
                value = None if key is not None and dice.random() < 0.1 else f"{dice.randrange(1 << 30)}"
                partition = number % PARTITIONS if key is None else int(key[4:]) % PARTITIONS
                fields = [each if each is None else each.encode() for each in (value, key)]
                outcome = await producer.send("orders", *fields, partition=partition)
                sent.append((key, value, outcome))
            for key, value, outcome in sent:
                offset = (await outcome).offset
                if key is None:
                    self.dead += 1
                else:
                    self.last[key] = None if value is None else (value, offset)
        finally:
            await producer.stop()


def spread(calls: HttpCalls) -> None:
    """Have the tablets but the first live in another cell."""
    cell = calls.ask("POST", "/v1/cells", {})["id"]
    calls.ask("POST", "/v1/tables/latest/unmount", {})
    calls.ask("POST", "/v1/tables/latest/mount", {"cell_id": str(cell), "first_tablet_index": 1})
    calls.ask("POST", "/v1/tables/latest/mount", {})


@pytest.mark.timeout(120 + 30 * KILLS)
@pytest.mark.parametrize("is_spread", [False, True], ids=["one cell", "two cells"])
def test_the_table_has_the_last_value_of_each_key_however_often_it_was_killed(tmp_path: Path, is_spread: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice, truth = random.Random(seed), Truth()
    with broker(tmp_path / "data", SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/topics", {"name": "orders", "partitions": PARTITIONS})
        calls.ask("POST", "/v1/tables", TABLE)
        if is_spread:
            spread(calls)
        calls.ask("POST", "/v1/materializations", {"topic": "orders", "table": "latest", "columns": ORIGINS})
        amid = 0
        for number in range(KILLS):
            calls.ask("POST", "/v1/materializations/latest/pause", {})  # so that the kill comes amid the records
            asyncio.run(truth.produce(node, dice, RECORDS))
            calls.ask("POST", "/v1/materializations/latest/resume", {})
            sent = (number + 1) * RECORDS
            least = fed(calls) + dice.randrange(RECORDS // 2)
            while (count := fed(calls)) < least:
                pass
            if number % 2:
                kill_workers(node.pid)
            else:
                amid += count < sent
                node.kill()
                node.start()
        assert amid, "no kill came amid the records"
        compare(calls, truth)
        node.stop()
    assert examine_directory(tmp_path / "data", {}).found == []


def fed(calls: HttpCalls) -> int:
    """Records that the table has had."""
    return sum(one["offset"] for one in calls.ask("GET", "/v1/materializations/latest")["partitions"])


def compare(calls: HttpCalls, truth: Truth) -> None:
    while (found := calls.ask("GET", "/v1/materializations/latest"))["lag"]:
        assert found["state"] != "stopped", found["reason"]
    assert found["dead_letter_count"] == truth.dead, "each was counted once"
    keys = [{"key": f"key-{number:03}"} for number in range(KEYS)]
    rows = patiently(lambda: calls.ask("POST", "/v1/tables/latest/lookup", {"keys": keys}))["rows"]
    given = [None if row is None else (row["value"], row["at"]) for row in rows]
    assert given == [truth.last.get(one["key"]) for one in keys]
