"""Groups of KIP-848 with librdkafka's consumers: they share, take over, move between the protocols, and outlive a kill
of the broker without a rebalance."""

from collections.abc import Iterator

import pytest

from pqbroker.testing import Broker, broker
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import Member, await_members

PARTITIONS = 4
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200", "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0",
}  # fmt: skip


@pytest.fixture
def running() -> Iterator[Broker]:
    """A broker whose members hear of changes soon."""
    with broker(settings=SETTINGS) as found:
        yield found


@pytest.fixture
def driver(running: Broker) -> LibrdkafkaDriver:
    made = LibrdkafkaDriver(running.kafka)
    made.create_topic("t", partitions=PARTITIONS)
    return made


def member(driver: LibrdkafkaDriver, protocol: str = "consumer") -> Member:
    return Member(lambda: driver.consumer("t", "g", protocol=protocol))


def write(driver: LibrdkafkaDriver, count: int) -> None:
    for partition in range(PARTITIONS):
        driver.produce("t", [Message(None, b"v")] * count, partition=partition)


def received(*members: Member) -> list[tuple[int, int]]:
    return sorted(place for each in members for place in each.received)


def test_members_keep_what_they_read_while_the_broker_is_killed(running: Broker, driver: LibrdkafkaDriver) -> None:
    write(driver, 5)
    everything = [(partition, offset) for partition in range(PARTITIONS) for offset in range(10)]
    with member(driver) as first, member(driver) as second:
        await_members(lambda: len(received(first, second)) >= 20 and first.assignments and second.assignments, "shared")
        for _ in range(2):
            running.kill()
            running.start()
        known = len(first.assignments), len(second.assignments)
        write(driver, 5)
        await_members(lambda: len(set(received(first, second))) == len(everything), "all records")
        assert sorted(set(received(first, second))) == everything
        assert (len(first.assignments), len(second.assignments)) == known


@pytest.mark.parametrize("protocols", [("classic", "consumer"), ("consumer", "classic")], ids="-then-".join)
def test_a_group_moves_between_the_protocols_while_its_members_read(
    driver: LibrdkafkaDriver, protocols: tuple[str, str]
) -> None:
    before, after = protocols
    write(driver, 5)
    with member(driver, after) as last:
        with member(driver, before) as first:
            await_members(lambda: len(set(received(first, last))) == 5 * PARTITIONS, "the first records")
            write(driver, 5)
            await_members(lambda: len(set(received(first, last))) == 10 * PARTITIONS, "records of both")
        write(driver, 5)
        await_members(lambda: len(set(received(first, last))) == 15 * PARTITIONS, "the last records")
