"""What a client may make a node hold, each limit exceeded over the wire; others stand beside what they limit."""

import struct
from collections.abc import Awaitable, Callable
from typing import Any

from pqbroker.broker.services.coordination.classic.messages import Leaver
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.conftest import Node, until
from tests.broker.kafka.handlers.test_broker_configs import SET, change
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]
LIST = "leader.replication.throttled.replicas"
TOPIC = 2


async def test_configs_of_a_topic(start: Start) -> None:
    node = await start(config_bytes_max=1024)
    client = await node.connect()
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1,
        configs=[CreatableTopicConfig(name=LIST, value="1:1," * 300)],
    )  # fmt: skip
    refused = (await client.ask(CreateTopicsRequest(topics=[topic]))).topics[0]
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "pqbroker.config.bytes.max" in refused.error_message
    await node.create_topic("t")
    config = AlterableConfig(name=LIST, config_operation=SET, value="1:1," * 300)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    answer = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "pqbroker.config.bytes.max" in answer.error_message


async def test_configs_of_a_node(start: Start) -> None:
    node = await start(config_bytes_max=1024)
    client = await node.connect()
    code, message = await change(client, "1", ("metric.reporters", SET, "x" * 2000))
    assert code == ErrorCode.INVALID_CONFIG
    assert "pqbroker.config.bytes.max" in (message or "")


async def test_the_id_of_a_group(start: Start) -> None:
    node = await start(group_id_bytes_max=100, group_initial_rebalance_delay_ms=0)
    client = await node.connect()
    assert (await join(client, "g" * 101)).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await join(client, "g" * 100)).error_code == ErrorCode.NONE


async def test_members_of_a_group(start: Start) -> None:
    node = await start(group_max_size=1, group_initial_rebalance_delay_ms=0)
    first, second = await node.connect(), await node.connect()
    assert (await join(first, "g")).error_code == ErrorCode.NONE
    assert (await join(second, "g")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_groups_of_a_node(start: Start) -> None:
    node = await start(groups_bytes_max=8192, group_initial_rebalance_delay_ms=0)
    clients = [await node.connect() for _ in range(5)]
    codes = [(await join(client, f"{number}")).error_code for number, client in enumerate(clients)]
    assert codes == [ErrorCode.NONE] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 3


async def test_a_group_that_is_gone_is_not_counted(start: Start) -> None:
    node = await start(group_min_session_timeout_ms=1, group_initial_rebalance_delay_ms=0)
    coordinators = node.server.node.cell.current.coordinators
    client = await node.connect()
    answer = await client.ask(join_request("never joined", session_timeout_ms=1), 4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    await until(lambda: coordinators.taken_bytes == 0)
    member_id = (await join(client, "deleted")).member_id
    coordinators.leave("deleted", [Leaver(member_id, None)])
    assert coordinators.taken_bytes > 0
    await coordinators.delete("deleted")
    assert coordinators.taken_bytes == 0


async def test_the_metadata_of_a_commit_and_the_consumers_of_a_partition(start: Start) -> None:
    node = await start(offset_metadata_max_bytes=10, partition_consumers_max=2)
    await node.create_topic("t")
    client = await node.connect()
    assert await commit(client, "g", "x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    codes = [await commit(client, group, "x") for group in "abc"]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


async def test_a_request(start: Start) -> None:
    node = await start(socket_request_max_bytes=1024)
    client = await node.connect()
    client.send_bytes(struct.pack(">i", 1025))
    assert await client.is_closed_by_peer()


async def test_a_fetch_answer(start: Start) -> None:
    node = await start(fetch_max_bytes=2000)
    await node.create_topic("t", 3)
    for partition in range(3):
        await node.produce("t", bytes(900), partition=partition)
    wanted = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(3)]
    asked = FetchRequest(max_wait_ms=0, max_bytes=1 << 30, topics=[FetchTopic(topic="t", partitions=wanted)])
    answer = await (await node.connect()).ask(asked, 12)
    found = [len(data.records or b"") > 0 for data in answer.responses[0].partitions]
    assert found == [True, True, False]


async def join(client: Client, group: str) -> Any:
    return await client.ask(join_request(group), 3)


def join_request(group: str, session_timeout_ms: int = 30_000) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=30_000, protocol_type="consumer",
        protocols=protocols,
    )  # fmt: skip


async def commit(client: Client, group: str, metadata: str) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=metadata)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await client.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 8)
    code: int = answer.topics[0].partitions[0].error_code
    return code
