"""A Java producer goes by the level of transaction.version from its next connection on."""

import re
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from pqbroker.testing import MEMORY, Broker
from pqbroker.testing import broker as started
from tests.support.java.tools import Tools

TRANSACTIONS = (
    "--topic", "t", "--num-records", "500", "--record-size", "100", "--throughput", "-1",
    "--transaction-duration-ms", "50", "--transactional-id", "x",
)  # fmt: skip
_COUNT = re.compile(r'^pqbroker_request_seconds_count\{api="(\w+)",version="(\d+)"\} ([\d.]+)', re.MULTILINE)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with started(MEMORY) as running:
        running.create_topic("t")
        yield running


def used(broker: Broker, before: frozenset[tuple[str, int]] = frozenset()) -> frozenset[tuple[str, int]]:
    """Return the APIs of transactions that were used, with their versions, but for those of before."""
    with urlopen(f"http://{broker.http}/metrics") as answer:
        found = _COUNT.findall(answer.read().decode())
    return frozenset((api, int(version)) for api, version, count in found if float(count)) - before


def test_a_java_producer_adds_partitions_at_level_1_and_not_at_level_2(broker: Broker) -> None:
    with Tools(broker.kafka) as tools:
        assert tools.run("kafka-producer-perf-test", TRANSACTIONS).status == 0
        second = used(broker)
        assert {("EndTxn", 5), ("Produce", 13)} <= second
        assert not any(api == "AddPartitionsToTxn" for api, _ in second)
        assert tools.run("kafka-features", ("downgrade", "--feature", "transaction.version=1")).status == 0
        assert tools.run("kafka-producer-perf-test", TRANSACTIONS).status == 0
        assert {("AddPartitionsToTxn", 3), ("EndTxn", 4), ("Produce", 11)} <= used(broker, second)


def test_features_are_described_with_their_levels(broker: Broker) -> None:
    with Tools(broker.kafka) as tools:
        lines = tools.run("kafka-features", ("describe",)).out.splitlines()
    described = {line.split()[1]: line.split()[3::2] for line in lines}
    assert described["transaction.version"][:3] == ["0", "2", "2"]
    assert described["metadata.version"][:3] == ["3.3-IV3", "4.3-IV0", "4.3-IV0"]
