"""Real clients under quotas: they are told to pause, and keep to their rate."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from pqbroker.testing import MEMORY, Broker, broker
from tests.cli.shell import Shell

RATE = 500_000
SECONDS = 10
BUSY_SHARE = 0.8
"""Least part of its quota that a producer reaches on a machine that does other things too."""


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker(MEMORY) as one:
        one.create_topic("t")
        yield one


def test_a_producer_keeps_within_five_percent_of_its_quota_over_ten_seconds(
    running: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    say = Shell(running.kafka, capsys)
    assert say("quota", "set", "--for-client-id", "limited", "--produce", str(RATE)).status == 0
    producer = Producer({"bootstrap.servers": running.kafka, "client.id": "limited", "linger.ms": 5})
    delivered = 0

    def count(error: object, message: object) -> None:
        nonlocal delivered
        assert error is None
        delivered += 1

    value, started = bytes(1000), time.monotonic()
    while time.monotonic() < started + SECONDS:
        while len(producer) < 100:
            producer.produce("t", value, on_delivery=count)
        producer.poll(0.01)
    elapsed_s, sent = time.monotonic() - started, delivered * len(value)
    producer.flush(30)
    assert BUSY_SHARE * RATE < sent / elapsed_s < 1.05 * RATE


def test_a_consumer_keeps_to_its_quota(running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    say = Shell(running.kafka, capsys)
    filler = Producer({"bootstrap.servers": running.kafka})
    for _ in range(3000):
        filler.produce("t", bytes(1000))
    filler.flush()
    assert say("quota", "set", "--for-client-id", "reader", "--consume", str(RATE)).status == 0
    consumer = Consumer({
        "bootstrap.servers": running.kafka, "client.id": "reader", "group.id": "g", "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 100_000, "fetch.max.bytes": 100_000, "message.max.bytes": 100_000,
        "queued.max.messages.kbytes": 100,
    })  # fmt: skip
    consumer.subscribe(["t"])
    assert consumer.poll(30) is not None
    read, started = 0, time.monotonic()
    while time.monotonic() < started + 4:
        message = consumer.poll(0.1)
        read += 0 if message is None or message.error() else len(message.value() or b"")
    elapsed_s = time.monotonic() - started
    consumer.close()
    assert read / elapsed_s < 1.2 * RATE
    assert read
