"""A batch in many parts, from a client to the disk and back, and a kill half-way through it (semantics G.2)."""

import asyncio
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from pqbroker.protocol.records import Record, encode_batch
from pqbroker.testing import Broker, broker
from tests.broker.conftest import produce_request
from tests.broker.wire import request_frame
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.wire import LATEST, Wire

pytestmark = pytest.mark.timeout(120)

BATCH_BYTES_MAX = 50 << 20
"""The cap is 120 MiB; tests/pq takes that far, with less to carry."""
VALUE = b"large" * ((BATCH_BYTES_MAX - 200) // 5)
TOPIC = "large"


async def _produce(address: str, value: bytes) -> int:
    producer = AIOKafkaProducer(
        bootstrap_servers=address, max_request_size=BATCH_BYTES_MAX, max_batch_size=BATCH_BYTES_MAX
    )
    async with producer:
        return int((await producer.send_and_wait(TOPIC, value, partition=0)).offset)


async def _consume(address: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(TOPIC, 0)])
    values = [(await consumer.getone()).value for _ in range(count)]
    await consumer.stop()
    return values


def _produce_and_kill(running: Broker, bytes_stored: int) -> None:
    """Kill the broker when it has stored so much of what is being produced."""
    batch = encode_batch([Record(0, 0, None, VALUE)])
    before = _stored_bytes(running)
    host, _, port = running.kafka.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        connection.sendall(request_frame(produce_request(TOPIC, batch), 9))
        wait_until(lambda: _stored_bytes(running) - before >= bytes_stored, "the first parts are stored")
        running.kill()


def _stored_bytes(running: Broker) -> int:
    with urllib.request.urlopen(f"http://{running.http}/metrics", timeout=DEADLINE_S) as answer:
        found = re.search(rb"^pqbroker_stored_bytes_total\{cell=\"0\"\} (\S+)", answer.read(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


@pytest.mark.spec("G.2")
def test_a_batch_in_parts_goes_in_and_out_whole_and_half_a_one_is_never_seen(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running:
        LibrdkafkaDriver(running.kafka).create_topic(TOPIC, config={"max.message.bytes": str(BATCH_BYTES_MAX)})
        assert asyncio.run(_produce(running.kafka, b"first")) == 0
        _produce_and_kill(running, 10 << 20)
        running.start()
        with Wire(running.kafka) as wire:
            stored = wire.offset(TOPIC, 0, LATEST)[1]
        assert stored in (1, 2), "all of it or nothing"
        assert asyncio.run(_produce(running.kafka, VALUE)) == stored
        assert asyncio.run(_produce(running.kafka, b"last")) == stored + 1
        running.kill()
        running.start()
        assert asyncio.run(_consume(running.kafka, stored + 2)) == [b"first", *[VALUE] * stored, b"last"]
