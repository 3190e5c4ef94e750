"""What docs/clients.md tabulates: every client by every behaviour."""

import itertools
from collections.abc import Callable

import pytest

from tests.compat.clients import CLIENTS, DRIVEN, MODERN, Clients
from tests.compat.clients_page import PAGE, PASSED, Outcomes, clients_page, declared
from tests.support.drivers.driver import Message, RefusedError
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import await_members
from tests.support.waiting import wait_until

QUIET_LOOKS = 10
PARTITIONS = frozenset(range(4))
RECORDS = [Message(b"value %d" % number, key=b"key %d" % number) for number in range(6)]
_group_numbers = itertools.count(1)

every_client = pytest.mark.parametrize("name", CLIENTS)
every_member = pytest.mark.parametrize("name", [*CLIENTS, *MODERN])


@pytest.fixture
def group() -> str:
    """A group that is new."""
    return f"matrix-{next(_group_numbers)}"


@pytest.fixture
def writer(kafka: str) -> LibrdkafkaDriver:
    """Another program, that writes what a client reads."""
    return LibrdkafkaDriver(kafka)


@pytest.fixture
def wide_topic(writer: LibrdkafkaDriver, fresh_name: Callable[[], str]) -> str:
    """A topic with a record in each of its partitions."""
    name = fresh_name()
    writer.create_topic(name, partitions=len(PARTITIONS))
    for partition in PARTITIONS:
        writer.produce(name, RECORDS[:1], partition=partition, idempotent=False)
    return name


def contents(read: list[tuple[int, Message]]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(offset, message.key, message.value) for offset, message in read]


@every_client
def test_produce(name: str, clients: Clients, writer: LibrdkafkaDriver, topic: str) -> None:
    clients.produce(name, topic, RECORDS)
    assert contents(writer.read(topic, count=len(RECORDS))) == contents(list(enumerate(RECORDS)))


@every_client
def test_consume(name: str, clients: Clients, writer: LibrdkafkaDriver, topic: str) -> None:
    writer.produce(topic, RECORDS)
    assert contents(clients.read(name, topic, len(RECORDS))) == contents(list(enumerate(RECORDS)))
    assert contents(clients.read(name, topic, 2, offset=3)) == contents(list(enumerate(RECORDS)))[3:5]


@every_member
def test_group_join(name: str, clients: Clients, wide_topic: str, group: str) -> None:
    with clients.member(name, wide_topic, group) as alone:
        await_members(lambda: alone.owned == PARTITIONS, "all partitions are its own")
        everything = [(partition, 0) for partition in sorted(PARTITIONS)]
        await_members(lambda: sorted(alone.received) == everything, "a record of each")


@every_member
def test_leave_and_rebalance(name: str, clients: Clients, wide_topic: str, group: str) -> None:
    with clients.member(name, wide_topic, group) as stays:
        await_members(lambda: stays.owned == PARTITIONS, "all partitions are the first one's")
        with clients.member(name, wide_topic, group) as leaves:
            await_members(lambda: len(stays.owned) == len(leaves.owned) == 2, "two partitions each")
            assert stays.owned | leaves.owned == PARTITIONS
        await_members(lambda: stays.owned == PARTITIONS, "all partitions are its own again")


@every_member
def test_commit_and_resume(name: str, clients: Clients, writer: LibrdkafkaDriver, topic: str, group: str) -> None:
    writer.produce(topic, RECORDS[:4])
    with clients.member(name, topic, group) as first:
        await_members(lambda: len(first.received) == 4, "four records")
        first.commit()
    assert writer.committed(group, topic) == {0: 4}
    writer.produce(topic, RECORDS[4:])
    with clients.member(name, topic, group) as second:
        await_members(lambda: len(second.received) == 2, "the two records after the commit")
        assert second.received == [(0, 4), (0, 5)]


@every_member
def test_static_membership(name: str, clients: Clients, writer: LibrdkafkaDriver, wide_topic: str, group: str) -> None:
    with (
        clients.member(name, wide_topic, group, "left") as left,
        clients.member(name, wide_topic, group, "right") as right,
    ):
        await_members(lambda: len(left.owned) == len(right.owned) == 2, "two partitions each")
        if name not in MODERN:  # which know no rebalance
            looks: list[int] = []

            def is_quiet() -> bool:
                """A member hears of its assignment a moment after the group is stable."""
                looks.append(len(left.assignments) + len(right.assignments))
                return writer.group(group).state == "Stable" and looks[-QUIET_LOOKS:] == looks[-1:] * QUIET_LOOKS

            wait_until(is_quiet, "no rebalance under way")
        given, rebalances = left.owned, len(right.assignments)
        left.leave()
        with clients.member(name, wide_topic, group, "left") as again:
            await_members(lambda: again.owned == given, "the partitions it had")
            assert len(right.assignments) == rebalances, "the other one was not disturbed"


@pytest.mark.parametrize("name", DRIVEN)
def test_admin(name: str, clients: Clients, fresh_name: Callable[[], str], group: str) -> None:
    topic = fresh_name()
    with clients.driver(name) as driver:
        driver.create_topic(topic, partitions=2, config={"retention.ms": "3600000"})
        driver.grow_topic(topic, 3)
        wait_until(lambda: driver.topics().get(topic) == 3, "three partitions listed")
        driver.alter_topic(topic, {"retention.ms": "7200000"})
        wait_until(lambda: driver.topic_config(topic)["retention.ms"] == "7200000", "the config altered")
        driver.produce(topic, RECORDS)
        driver.trim_topic(topic, 2)
        assert driver.bounds(topic) == (2, 6)
        administer_group(clients, name, topic, group)
        driver.delete_topic(topic)
        wait_until(lambda: topic not in driver.topics(), "the topic no longer listed")


def administer_group(clients: Clients, name: str, topic: str, group: str) -> None:
    """Describe a group that lives, and delete it when it is empty."""
    with clients.driver(name) as driver:
        with clients.member(name, topic, group) as member:
            await_members(lambda: len(member.received) == 4, "four records")
            member.commit()
            assert group in driver.groups()
            assert (driver.group(group).state, driver.group(group).members) == ("Stable", 1)
            with pytest.raises(RefusedError) as refused:
                driver.delete_group(group)
            assert refused.value.code == 68, "a group with members stays"
        assert (driver.group(group).state, driver.group(group).members) == ("Empty", 0)
        assert driver.committed(group, topic)[0] == 6
        driver.delete_group(group)
        assert group not in driver.groups()


def test_the_page_says_what_the_matrix_came_to(outcomes: Outcomes) -> None:
    ran = outcomes.cells
    assert ran.keys() <= declared()
    whole = {cell: ran.get(cell, PASSED) for cell in declared()}  # the rest is as promised
    assert PAGE.read_text(encoding="utf-8") == clients_page(whole), "run: python -m tests.compat.clients_page"
