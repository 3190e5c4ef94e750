"""Two brokers on one directory whose lock file was removed: the older one is fenced."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from pqbroker.testing import BrokerFailedError, broker
from tests.faults.load import Load, check
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.wire import LATEST, Wire

pytestmark = pytest.mark.spec("B.4")

TOPIC = "owned"
PARTITIONS = 2
TIMEOUT_S = 3


def test_the_older_owner_acknowledges_nothing_more_and_nothing_is_lost(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with broker(directory) as older:
        LibrdkafkaDriver(older.kafka).create_topic(TOPIC, partitions=PARTITIONS)
        prober = Producer({"bootstrap.servers": older.kafka, "message.timeout.ms": TIMEOUT_S * 1000, "log_level": 0})
        prober.list_topics(TOPIC, 10)
        with Load(older.kafka, TOPIC, list(range(PARTITIONS)), seed=1, timeout_s=TIMEOUT_S) as load:
            load.await_acknowledgements(100)
            locks = list(directory.rglob("lock"))
            assert locks, "no lock file; has its name changed?"
            for lock in locks:
                lock.unlink()
            with broker(directory) as newer:
                errors: list[object] = []
                for partition in range(PARTITIONS):
                    prober.produce(TOPIC, b"", partition=partition, on_delivery=lambda error, _: errors.append(error))
                assert prober.flush(2 * TIMEOUT_S) == 0
                load.settle()
                assert len(errors) == PARTITIONS
                assert all(error is not None for error in errors), "the older owner acknowledged a record"
                with Wire(newer.kafka) as wire:
                    ends = {partition: wire.offset(TOPIC, partition, LATEST)[1] for partition in range(PARTITIONS)}
                assert all(end >= load.ends()[partition] for partition, end in ends.items())
                assert check(load, newer.kafka) >= 100 * PARTITIONS
        older.kill()


def test_a_second_process_is_refused_while_the_lock_is_held(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with broker(directory) as owner:
        with pytest.raises(BrokerFailedError, match=str(owner.pid)), broker(directory):
            pass
        assert owner.running
