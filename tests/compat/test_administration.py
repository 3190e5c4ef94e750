"""Every client library creates, grows, describes and deletes topics, and describes the cluster."""

from collections.abc import Callable

import pytest

from tests.support.drivers.driver import Driver, Message, RefusedError
from tests.support.waiting import wait_until

UNKNOWN_TOPIC, INVALID_NAME, EXISTS, INVALID_PARTITIONS, INVALID_CONFIG = 3, 17, 36, 37, 40
RETENTION = {"retention.ms": "3600000", "max.message.bytes": "2000000"}


def test_a_created_topic_is_listed_with_its_partitions(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    client.create_topic(name, partitions=5)
    wait_until(lambda: client.topics().get(name) == 5, "five partitions listed")


def test_a_topic_is_created_once(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    client.create_topic(name)
    with pytest.raises(RefusedError) as refused:
        client.create_topic(name)
    assert refused.value.code == EXISTS


def test_a_topic_with_an_impossible_name_is_refused(client: Driver) -> None:
    with pytest.raises(RefusedError) as refused:
        client.create_topic("no spaces")
    assert refused.value.code == INVALID_NAME


def test_a_topic_with_an_unknown_config_is_refused(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    with pytest.raises(RefusedError) as refused:
        client.create_topic(name, config={"retention.fortnights": "1"})
    assert refused.value.code == INVALID_CONFIG
    assert name not in client.topics()


def test_a_deleted_topic_is_gone(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    client.create_topic(name)
    client.delete_topic(name)
    wait_until(lambda: name not in client.topics(), "the topic no longer listed")


def test_deleting_an_unknown_topic_is_refused(client: Driver, fresh_name: Callable[[], str]) -> None:
    with pytest.raises(RefusedError) as refused:
        client.delete_topic(fresh_name())
    assert refused.value.code == UNKNOWN_TOPIC


def test_a_topic_made_again_starts_empty(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    client.create_topic(name)
    client.produce(name, [Message(b"of the first topic")])
    client.delete_topic(name)
    client.create_topic(name)
    assert client.bounds(name) == (0, 0)


def test_a_grown_topic_takes_records_in_its_new_partitions(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    client.create_topic(name, partitions=2)
    client.grow_topic(name, 4)
    wait_until(lambda: client.topics().get(name) == 4, "four partitions listed")
    assert client.produce(name, [Message(b"in the last")], partition=3) == [0]


def test_a_topic_does_not_shrink(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    client.create_topic(name, partitions=3)
    for count in (2, 3):
        with pytest.raises(RefusedError) as refused:
            client.grow_topic(name, count)
        assert refused.value.code == INVALID_PARTITIONS


def test_describing_a_topic_lists_what_is_set_and_the_defaults(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    client.create_topic(name, config=RETENTION)
    described = client.topic_config(name)
    assert {key: described[key] for key in RETENTION} == RETENTION
    assert described["cleanup.policy"] == "delete"
    assert described["message.timestamp.type"] == "CreateTime"
    assert {"segment.bytes", "min.insync.replicas", "compression.type", "retention.bytes"} <= described.keys()


def test_every_client_is_told_of_one_node_that_is_the_controller(
    client: Driver, others: list[Driver], kafka: str
) -> None:
    cluster = client.cluster()
    assert cluster.cluster_id
    assert cluster.brokers[cluster.controller_id] == kafka
    assert len(cluster.brokers) == 1
    assert {other.cluster().cluster_id for other in others} == {cluster.cluster_id}
