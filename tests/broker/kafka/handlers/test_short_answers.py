"""What a client asks for that is not served here: as Apache Kafka 4.3.1 answers with it switched off, or empty.

The answers were compared with Kafka's on the wire; the texts are our own.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pqbroker.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from pqbroker.protocol.messages.describe_quorum import AskedPartition, AskedTopic, DescribeQuorumRequest
from pqbroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from pqbroker.protocol.messages.list_transactions import ListTransactionsRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pqbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.conftest import Node
from tests.broker.wire import Client

EXACT, DEFAULT, ANY = 0, 1, 2
METADATA = "__cluster_metadata"
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", ""])
async def test_a_handshake_is_refused_on_a_plain_listener(client: Client, version: int, mechanism: str) -> None:
    response = await client.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


async def test_a_member_of_a_share_group_gets_a_final_error(client: Client) -> None:
    request = ShareGroupHeartbeatRequest(group_id="g", member_epoch=0, subscribed_topic_names=["t"])
    response = await client.ask(request)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "share groups" in response.error_message


@pytest.mark.parametrize("version", range(3))
async def test_no_transaction_is_listed(client: Client, version: int) -> None:
    response = await client.ask(ListTransactionsRequest(state_filters=["Ongoing", "Nope", "ongoing", "Nope"]), version)
    assert (response.error_code, response.transaction_states) == (0, [])
    assert response.unknown_state_filters == ["Nope", "ongoing"]


@pytest.mark.parametrize("users", [None, []])
async def test_there_are_no_users(client: Client, users: list[UserName] | None) -> None:
    response = await client.ask(DescribeUserScramCredentialsRequest(users=users))
    assert (response.error_code, response.results) == (0, [])


async def test_each_user_asked_for_is_not_found_once(client: Client) -> None:
    users = [UserName(name=name) for name in ("a", "b", "a", "")]
    results = (await client.ask(DescribeUserScramCredentialsRequest(users=users))).results
    missing, twice = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
    assert sorted((each.user, each.error_code) for each in results) == [("", missing), ("a", twice), ("b", missing)]
    assert all(each.error_message and not each.credential_infos for each in results)


def component(entity_type: str, match_type: int, match: str | None) -> ComponentData:
    return ComponentData(entity_type=entity_type, match_type=match_type, match=match)


@pytest.mark.parametrize("version", range(2))
async def test_nobody_has_a_quota(client: Client, version: int) -> None:
    components = [component("user", DEFAULT, None), component("client-id", EXACT, "c")]
    for asked in ([], components):
        response = await client.ask(DescribeClientQuotasRequest(components=asked), version)
        assert (response.error_code, response.entries) == (0, [])


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("nonsense", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_wrong_filter_of_quotas_is_refused(
    client: Client, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    response = await client.ask(DescribeClientQuotasRequest(components=[component(*each) for each in components]))
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message


def codes(topics: list[Any]) -> list[tuple[str, list[tuple[int, int]]]]:
    """Index and error code of the partitions of each topic of an answer."""
    return [(each.topic_name, [(p.partition_index, p.error_code) for p in each.partitions]) for each in topics]


def quorum(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            AskedTopic(topic_name=name, partitions=[AskedPartition(partition_index=index) for index in partitions])
            for name, partitions in topics
        ]
    )


@pytest.mark.parametrize("version", range(3))
async def test_the_node_is_its_own_quorum(node: Node, client: Client, version: int) -> None:
    response = await client.ask(quorum((METADATA, [0])), version)
    ((topic,), code) = (response.topics, response.error_code)
    (partition,) = topic.partitions
    assert (code, topic.topic_name, partition.error_code, partition.leader_id) == (0, METADATA, 0, 1)
    (voter,) = partition.current_voters
    now_ms = node.clock.now_ms if version >= 1 else -1
    assert (voter.replica_id, voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (1, now_ms, now_ms)
    assert (partition.observers, voter.log_end_offset) == ([], partition.high_watermark)
    address = node.server.kafka_address
    listeners = [(each.host, each.port) for asked in response.nodes for each in asked.listeners]
    assert listeners == ([(address.host, address.port)] if version >= 2 else [])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([("nope", [0])], [("nope", [(0, UNKNOWN)])]),
        ([(METADATA, [1])], [(METADATA, [(1, UNKNOWN)])]),
        ([(METADATA, [0, 1]), ("nope", [])], [(METADATA, [(0, UNKNOWN), (1, UNKNOWN)]), ("nope", [])]),
        ([], []),
    ],
)
async def test_nothing_else_has_a_quorum(
    client: Client, asked: list[tuple[str, list[int]]], expected: list[tuple[str, list[tuple[int, int]]]]
) -> None:
    response = await client.ask(quorum(*asked))
    assert (response.error_code, codes(response.topics), response.nodes) == (0, expected, [])


def move(path: str, *topics: tuple[str, list[int]]) -> AlterReplicaLogDir:
    moved = [AlterReplicaLogDirTopic(name=name, partitions=partitions) for name, partitions in topics]
    return AlterReplicaLogDir(path=path, topics=moved)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_partition_may_stay_in_its_directory(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", partitions=2)
    here = move(":memory:", ("t", [0, 1, 7, 0]), ("u", [0]))
    results = (await client.ask(AlterReplicaLogDirsRequest(dirs=[here]), version)).results
    assert codes(results) == [("t", [(0, 0), (1, 0), (7, UNKNOWN)]), ("u", [(0, UNKNOWN)])]


async def test_the_last_directory_that_is_named_for_a_partition_counts(node: Node, client: Client) -> None:
    await node.create_topic("t")
    for paths, code in (((":memory:", "/nope"), ErrorCode.LOG_DIR_NOT_FOUND), (("/nope", ":memory:"), ErrorCode.NONE)):
        request = AlterReplicaLogDirsRequest(dirs=[move(path, ("t", [0])) for path in paths])
        ((partition,),) = [each.partitions for each in (await client.ask(request)).results]
        assert partition.error_code == code


async def test_a_partition_does_not_move_alone_to_another_pool(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(pools=("main", "big"))
    await node.create_topic("t")
    other = node.server.node.pools()[1].directory
    request = AlterReplicaLogDirsRequest(dirs=[move(other, ("t", [0]))])
    ((partition,),) = [each.partitions for each in (await (await node.connect()).ask(request)).results]
    assert partition.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
