"""Commands that read records see those that are committed, at our broker and at Apache Kafka."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.memory import MemoryEngine
from tests.cli.shell import Shell, run
from tests.pq.rig import batch, transactional
from tests.support.waiting import DEADLINE_S

UNCOMMITTED = ("--isolation", "read_uncommitted")


def exported(file: Path) -> list[str]:
    return [json.loads(line)["value"] for line in file.read_text().splitlines()]


def test_transactions_of_a_real_producer_at_apache_kafka(
    apache: str, capsys: pytest.CaptureFixture[str], fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    shell, topic = Shell(apache, capsys), fresh_name()
    assert shell("topic", "create", topic).status == 0
    producer = Producer({"bootstrap.servers": apache, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(DEADLINE_S)
    for value, end in (("a", producer.commit_transaction), ("b", producer.abort_transaction), ("c", producer.flush)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(DEADLINE_S) == 0
        end(DEADLINE_S)
    assert shell("consume", topic).output == "a\n"
    assert shell("consume", topic, *UNCOMMITTED).output == "a\nb\nc\n"
    for name, options, values in (("one", (), ["a"]), ("all", UNCOMMITTED, ["a", "b", "c"])):
        file = tmp_path / f"{name}.jsonl"
        assert shell("topic", "export", topic, str(file), *options).status == 0
        assert exported(file) == values
    producer.abort_transaction(DEADLINE_S)


async def test_commands_at_our_broker(tmp_path: Path) -> None:
    server = Server(BrokerSettings(), MemoryEngine(64 << 20), Address("127.0.0.1", 0), Address("127.0.0.1", 0))
    await server.start()
    try:
        topic = await server.node.cell.current.topics.create("t", 1, {})
        partition = topic.partitions[0]
        for number, is_commit in enumerate((False, True, False)):
            value = b"%d" % number
            await partition.write(*transactional(value, producer=(7, 0, number)))
            await partition.end_transaction(7, 0, 0, is_commit=is_commit)
        await partition.write(*transactional(b"open", producer=(7, 0, 3)))
        await partition.write(*batch(b"behind"))

        async def said(*arguments: str) -> Any:
            kafka = ("--broker", str(server.kafka_address))
            found = await asyncio.to_thread(run, *arguments, *kafka)
            assert found.status == 0, found.errors
            return found.output

        assert await said("consume", "t") == "1\n"
        assert await said("consume", "t", *UNCOMMITTED) == "0\n1\n2\nopen\nbehind\n"
        await said("topic", "export", "t", str(tmp_path / "t.jsonl"))
        assert exported(tmp_path / "t.jsonl") == ["1"]
        http = ("--http", str(server.http_address))
        counted = await asyncio.to_thread(run, "sql", "SELECT count(*) AS n FROM t", "--json", *http)
        assert counted.object == {"n": 1}
        counted = await asyncio.to_thread(run, "sql", "SELECT count(*) AS n FROM t", "--json", *UNCOMMITTED, *http)
        assert counted.object == {"n": 5}
    finally:
        await server.stop()
