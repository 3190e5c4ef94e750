"""Blobs in a pool of their own, by settings: they are there after a kill, and the pool may not be forgotten."""

import random
from pathlib import Path

import pytest

from pqbroker.testing import BrokerFailedError, broker
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.wire import Wire

TOPIC = "pooled"


@pytest.mark.spec("K.2")
def test_topics_lie_in_the_pool_that_the_profile_names(tmp_path: Path) -> None:
    data, big = tmp_path / "data", tmp_path / "big"
    settings = {"pqbroker.pools": f"big={big}", "pqbroker.storage.profile": "persqueue.2=big"}
    source = random.Random(3)
    with broker(data) as before:
        client = LibrdkafkaDriver(before.kafka)
        client.create_topic("early", partitions=1)
        client.produce("early", [Message(source.randbytes(50_000))], partition=0)
    with broker(data, settings) as node:
        client = LibrdkafkaDriver(node.kafka)
        client.create_topic(TOPIC, partitions=1)
        client.produce(TOPIC, [Message(source.randbytes(50_000)) for _ in range(10)], partition=0)
        client.produce("early", [Message(source.randbytes(50_000))], partition=0)
        assert stored(big) > 500_000
        assert 100_000 < stored(data / "blobs") < 200_000
        with Wire(node.kafka) as wire:
            batches = [batch for _, batch in wire.log(TOPIC, 0)]
        node.kill()
        node.start()
        with Wire(node.kafka) as wire:
            assert [batch for _, batch in wire.log(TOPIC, 0)] == batches
            assert len(list(wire.log("early", 0))) == 2
    with pytest.raises(BrokerFailedError, match=r"blobs in pool big, which is not configured"), broker(data):
        pass


def stored(pool: Path) -> int:
    """Bytes that the segments of a pool take; those that end in what nothing was written to yet."""
    return sum(len(path.read_bytes().rstrip(b"\0")) for path in pool.glob("*.segment"))
