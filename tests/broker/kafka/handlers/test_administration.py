"""What tools ask of a broker that here has a short answer: log dirs, elections, reassignments, producers, resources."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pqbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pqbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pqbroker.protocol.messages.describe_acls import DescribeAclsRequest
from pqbroker.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from pqbroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pqbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pqbroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
from pqbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pqbroker.storage.tablets.tablet import USER_CHANNEL
from tests.broker.conftest import ENGINE_BYTES, Node
from tests.broker.node.test_restart import owner
from tests.broker.wire import Client

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def sizes(response: DescribeLogDirsResponse) -> dict[str, list[tuple[int, bool]]]:
    """Index, and whether there are bytes, of the partitions of each topic."""
    (result,) = response.results
    assert all((each.offset_lag, each.is_future_key) == (0, False) for t in result.topics for each in t.partitions)
    return {t.name: [(each.partition_index, each.partition_size > 0) for each in t.partitions] for t in result.topics}


@pytest.mark.parametrize("version", range(1, 6))
async def test_every_partition_is_in_the_log_dir_with_its_size(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", partitions=2)
    await node.create_topic("u")
    await node.produce("t", b"x" * 100, partition=1)
    response = await client.ask(DescribeLogDirsRequest(topics=None), version)
    assert (response.error_code, response.results[0].error_code) == (0, 0)
    assert response.results[0].log_dir == ":memory:"
    assert sizes(response) == {"t": [(0, False), (1, True)], "u": [(0, False)]}
    space = (response.results[0].total_bytes, 0 < response.results[0].usable_bytes < ENGINE_BYTES)
    assert space == ((ENGINE_BYTES, True) if version >= 4 else (-1, False))


async def test_a_partition_is_in_the_pool_that_it_is_written_to(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(pools=("main", "big"))
    await node.create_topic("stays", 2)
    await node.create_topic("moves", 1)
    topic = node.server.node.cell.current.topics.get("moves")
    assert topic is not None
    (tablet,) = topic.record.tablets
    await owner(node).move_channel(tablet, USER_CHANNEL, 1)
    await owner(node).restart_tablet(tablet)
    response = await (await node.connect()).ask(DescribeLogDirsRequest(topics=None))
    assert [
        {asked.name: [partition.partition_index for partition in asked.partitions] for asked in pool.topics}
        for pool in response.results
    ] == [{"stays": [0, 1]}, {"moves": [0]}]


async def test_a_table_may_get_fewer_tablets_while_its_partitions_are_listed(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t", partitions=4)
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    turns = []

    async def breathe(context: Context) -> None:
        turns.append(context)
        if len(turns) == 3:
            topic.record = replace(topic.record, partitions=2)

    monkeypatch.setattr(Context, "breathe", breathe)
    assert sizes(await client.ask(DescribeLogDirsRequest(topics=None))) == {"t": [(0, False), (1, False)]}


async def test_only_the_partitions_asked_for_that_are_here_are_in_the_log_dir(node: Node, client: Client) -> None:
    await node.create_topic("t", partitions=3)
    topics = [DescribableLogDirTopic(topic="t", partitions=[2, 9]), DescribableLogDirTopic(topic="u", partitions=[0])]
    assert sizes(await client.ask(DescribeLogDirsRequest(topics=topics))) == {"t": [(2, False)]}
    assert sizes(await client.ask(DescribeLogDirsRequest(topics=[]))) == {}
    topics = [DescribableLogDirTopic(topic="t", partitions=[index]) for index in (2, 0)]
    assert sizes(await client.ask(DescribeLogDirsRequest(topics=topics))) == {"t": [(0, False), (2, False)]}


@pytest.mark.parametrize("version", range(3))
async def test_no_election_is_needed(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", partitions=2)
    topics = [TopicPartitions(topic="t", partitions=[0, 1, 2]), TopicPartitions(topic="u", partitions=[0])]
    response = await client.ask(ElectLeadersRequest(topic_partitions=topics), version)
    assert response.error_code == 0
    not_needed, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    results = [(each.topic, [(p.partition_id, p.error_code) for p in each.partition_result])
               for each in response.replica_election_results]  # fmt: skip
    assert results == [("t", [(0, not_needed), (1, not_needed), (2, unknown)]), ("u", [(0, unknown)])]


@pytest.mark.parametrize("election", range(2))
async def test_electing_every_leader_elects_none_and_names_every_topic(
    node: Node, client: Client, election: int
) -> None:
    await node.create_topic("t", partitions=2)
    await node.create_topic("u")
    response = await client.ask(ElectLeadersRequest(election_type=election, topic_partitions=None))
    results = sorted((each.topic, len(each.partition_result)) for each in response.replica_election_results)
    assert (response.error_code, results) == (0, [("t", 0), ("u", 0)])


async def test_an_election_of_an_unknown_type_is_refused(client: Client) -> None:
    topics = [TopicPartitions(topic="t", partitions=[0])]
    response = await client.ask(ElectLeadersRequest(election_type=9, topic_partitions=topics))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(2))
async def test_a_partition_may_stay_where_it_is(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t")
    wanted: list[tuple[int, list[int] | None]] = [(0, [1]), (0, [1, 2]), (0, [2]), (0, []), (0, None), (4, [1])]
    partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in wanted]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    response = await client.ask(request, version)
    assert response.error_code == 0
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    codes = [each.error_code for each in response.responses[0].partitions]
    none, unknown = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [0, wrong, wrong, wrong, none, unknown]
    assert all(each.error_message for each in response.responses[0].partitions if each.error_code)


async def test_nothing_is_being_moved(node: Node, client: Client) -> None:
    await node.create_topic("t")
    asked = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]
    for topics in (None, asked):
        response = await client.ask(ListPartitionReassignmentsRequest(topics=topics))
        assert (response.error_code, response.topics) == (0, [])


async def test_producers_are_described_with_their_last_sequence(node: Node, client: Client) -> None:
    await node.create_topic("t", partitions=2)
    node.clock.now_ms += 5000
    await node.produce("t", b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0)
    await node.produce("t", b"c")
    asked = [TopicRequest(name="t", partition_indexes=[0, 1, 2])]
    first, second, third = (await client.ask(DescribeProducersRequest(topics=asked))).topics[0].partitions
    (active,) = first.active_producers
    assert (active.producer_id, active.producer_epoch, active.last_sequence) == (7, 3, 1)
    assert active.last_timestamp == 1_700_000_000_001, "that of the batch, not the clock's"
    assert (active.coordinator_epoch, active.current_txn_start_offset) == (-1, -1)
    assert (second.error_code, second.active_producers) == (0, [])
    assert (third.error_code, third.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [("t", TOPIC), ("u", TOPIC), ("1", BROKER), ("1", LOGGER)]),
        ([TOPIC], [("t", TOPIC), ("u", TOPIC)]),
        ([BROKER], [("1", BROKER)]),
        ([LOGGER, CLIENT_METRICS, GROUP], [("1", LOGGER)]),
    ],
)
async def test_topics_and_the_broker_have_configs(
    node: Node, client: Client, types: list[int], expected: list[tuple[str, int]]
) -> None:
    await node.create_topic("t")
    await node.create_topic("u")
    response = await client.ask(ListConfigResourcesRequest(resource_types=types))
    assert response.error_code == 0
    assert [(each.resource_name, each.resource_type) for each in response.config_resources] == expected


async def test_version_0_lists_client_metrics_of_which_there_are_none(node: Node, client: Client) -> None:
    await node.create_topic("t")
    response = await client.ask(ListConfigResourcesRequest(), 0)
    assert (response.error_code, response.config_resources) == (0, [])


async def test_resources_of_an_unknown_type_are_refused(client: Client) -> None:
    response = await client.ask(ListConfigResourcesRequest(resource_types=[TOPIC, 77]))
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


@pytest.mark.parametrize("version", range(1, 4))
async def test_access_rules_are_refused_as_where_there_is_no_access_control(client: Client, version: int) -> None:
    described = await client.ask(DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    rule = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    created = (await client.ask(CreateAclsRequest(creations=[rule, rule]), version)).results
    assert [each.error_code for each in created] == [ErrorCode.SECURITY_DISABLED] * 2
    every = DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
    deleted = (await client.ask(DeleteAclsRequest(filters=[every]), version)).filter_results
    assert [(each.error_code, each.matching_acls) for each in deleted] == [(ErrorCode.SECURITY_DISABLED, [])]
