"""A Kafka Streams application whose changelogs are cleaned restores its state from them."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.fixture.http_calls import HttpCalls
from tests.support.cleaning import settled
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.streams_application import StreamsApplication
from tests.support.serving import is_ours
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not is_ours(), reason="only our broker cleans on command")

PARTITIONS = 2
WORDS = [f"word {number % 23}" for number in range(400)]
PATIENCE_S = 60.0


def write_words(driver: LibrdkafkaDriver, topic: str) -> None:
    for partition in range(PARTITIONS):
        messages = [Message(word.encode()) for word in WORDS[partition::PARTITIONS]]
        driver.produce(topic, messages, partition=partition)


def await_counts(application: StreamsApplication, times: int) -> int:
    """Wait until every word was counted as often as it was written; return how many records were restored."""
    counts = {word: times * count for word, count in Counter(WORDS).items()}

    def has_counted() -> bool:
        shown = application.show()
        return shown.counts == shown.windowed == counts

    wait_until(has_counted, f"{times} times each word counted", PATIENCE_S)
    return application.show().restored


def await_changelog(driver: LibrdkafkaDriver, topic: str) -> None:
    """Wait until each count is written: a store shows it earlier."""

    def is_whole() -> bool:
        return sum(driver.bounds(topic, index)[1] for index in range(PARTITIONS)) == len(WORDS)

    wait_until(is_whole, "all counts in the changelog")


def clean(calls: HttpCalls, topic: str) -> int:
    """Clean all partitions of a topic; return how many records went."""
    calls.ask("POST", f"/v1/topics/{topic}/clean", {})
    return sum(int(settled(calls, topic, index)["last"]["records_gone"]) for index in range(PARTITIONS))


def test_an_application_without_its_state_restores_it_from_cleaned_changelogs(
    kafka: str, calls: HttpCalls, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, driver, state = fresh_name(), LibrdkafkaDriver(kafka), tmp_path / "state"
    stores = {"counts": "compact", "windowed": "compact,delete"}
    policies = {f"counting-{topic}-{store}-changelog": policy for store, policy in stores.items()}
    driver.create_topic(topic, partitions=PARTITIONS)
    write_words(driver, topic)
    with StreamsApplication(kafka, f"counting-{topic}", topic, state) as application:
        assert await_counts(application, 1) == 0
        for changelog in policies:
            await_changelog(driver, changelog)
            assert clean(calls, changelog) == len(WORDS) - len(set(WORDS))
        write_words(driver, topic)
        await_counts(application, 2)
    for changelog, policy in policies.items():
        config = driver.topic_config(changelog)
        assert (config["cleanup.policy"], config["segment.bytes"]) == (policy, "1048576")
        clean(calls, changelog)
    shutil.rmtree(state)
    with StreamsApplication(kafka, f"counting-{topic}", topic, state) as application:
        assert await_counts(application, 2) == len(policies) * len(set(WORDS))
        write_words(driver, topic)
        await_counts(application, 3)
