"""A Kafka Streams application counts each word once, over three `kill -9` of its broker and a loss of its state."""

import random
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pqbroker.testing import FOR_TESTS, Broker, broker
from tests.compat.test_streams import PATIENCE_S
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.streams_application import StreamsApplication
from tests.support.waiting import wait_until

PARTITIONS = 2
KILLS = 3
TOPIC, NAME = "words", "counting"
WORDS = [f"word {number % 17}" for number in range(900)]
PAUSE_S = 0.02


def write_words(address: str, stopping: threading.Event) -> None:
    """Write all words, slowly, until it is to stop: then at once."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
    for number, word in enumerate(WORDS):
        producer.produce(TOPIC, word.encode(), partition=number % PARTITIONS)
        producer.poll(0)
        if number % 3 == 0:
            stopping.wait(PAUSE_S)
    assert producer.flush(PATIENCE_S) == 0


def await_more(application: StreamsApplication, counted: int) -> None:
    """Wait until the application has counted more words than so many."""
    wait_until(lambda: sum(application.show().counts.values()) > counted, "more words counted", 2 * PATIENCE_S)


def await_counts(application: StreamsApplication) -> None:
    """Wait until each word was counted; one that is counted twice stays so."""
    wanted = Counter(WORDS)

    def has_counted() -> bool:
        shown = application.show()
        over = {word: count for word, count in shown.counts.items() if count > wanted[word]}
        assert not over, f"counted twice: {over}"
        return shown.counts == shown.windowed == wanted

    wait_until(has_counted, "each word counted once", 2 * PATIENCE_S)


@pytest.mark.timeout(600)
def test_counts_are_exact_over_three_kills_of_the_broker(tmp_path: Path) -> None:
    state, chance = tmp_path / "state", random.Random()
    with broker(settings=FOR_TESTS) as node:
        with LibrdkafkaDriver(node.kafka) as driver:
            driver.create_topic(TOPIC, partitions=PARTITIONS)
        with StreamsApplication(node.kafka, NAME, TOPIC, state, "exactly_once_v2") as application:
            _count_over_kills(node, application, chance)
        shutil.rmtree(state)
        with StreamsApplication(node.kafka, NAME, TOPIC, state, "exactly_once_v2") as application:
            await_counts(application)


def _count_over_kills(node: Broker, application: StreamsApplication, chance: random.Random) -> None:
    stopping = threading.Event()
    writing = threading.Thread(target=write_words, args=(node.kafka, stopping))
    writing.start()
    try:
        for _ in range(KILLS):
            await_more(application, sum(application.show().counts.values()) + chance.randrange(20))
            node.kill()
            node.start()
    finally:
        stopping.set()
        writing.join()
    await_counts(application)
