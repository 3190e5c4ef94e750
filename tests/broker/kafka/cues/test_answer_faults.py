"""Faults of requests on cue, over the wire: which requests meet them, what these get, and when the faults are over."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.ground.cues.faults import Act, Cue
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.cues.answer_faults import AnswerFaults
from pqbroker.broker.kafka.served import APIS
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.list_groups import ListGroupsRequest
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.messages.produce import ProduceRequest
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import Client

API = {api.name: api for api in APIS}
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
LONG_MS = 600_000


@pytest.fixture
async def node(start: Callable[..., Awaitable[Node]]) -> Node:
    """A test broker with a topic of two partitions."""
    node = await start(test_door=True)
    await node.create_topic("t", 2)
    return node


@pytest.fixture
def faults(node: Node) -> AnswerFaults:
    assert node.server.node.cues is not None
    answers = node.server.node.cues.answers
    assert isinstance(answers, AnswerFaults)
    return answers


@pytest.fixture
async def client(node: Node) -> Client:
    return await node.connect()


def error(api: str, code: ErrorCode = NOT_LEADER, **options: Any) -> Cue:
    return Cue(Act.ERROR, API[api], code, **options)


async def produced(client: Client, partition: int = 0) -> ErrorCode:
    response = await client.ask(produce_request("t", make_batch(), partition), 9)
    code: ErrorCode = response.responses[0].partition_responses[0].error_code
    return code


def fetch_request(*partitions: int, epoch: int = -1, session_id: int = 0, wait_ms: int = 0) -> FetchRequest:
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in partitions]
    topics = [FetchTopic(topic="t", partitions=asked)] if asked else []
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=10_000, session_epoch=epoch, session_id=session_id, topics=topics
    )


async def fetched(client: Client, request: FetchRequest) -> dict[int, tuple[ErrorCode, bool]]:
    """By partition: its error, and whether it gave records."""
    response = await client.ask(request, 12)
    assert response.error_code == ErrorCode.NONE
    return {
        data.partition_index: (data.error_code, bool(data.records))
        for topic in response.responses
        for data in topic.partitions
    }


async def test_an_api_answers_with_an_error_a_number_of_times(client: Client, faults: AnswerFaults, node: Node) -> None:
    faults.add(error("Produce", times=2))
    assert [await produced(client) for _ in range(3)] == [NOT_LEADER, NOT_LEADER, ErrorCode.NONE]
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert topic.partitions[0].end_offset == 1
    assert len(faults) == 0


async def test_without_a_count_it_does_so_until_the_fault_is_ended(client: Client, faults: AnswerFaults) -> None:
    fault = faults.add(error("Produce"))
    assert [await produced(client) for _ in range(3)] == [NOT_LEADER] * 3
    assert faults.end(fault.number)
    assert not faults.end(fault.number)
    assert await produced(client) is ErrorCode.NONE


async def test_a_lane_that_was_open_before_meets_it_too(client: Client, faults: AnswerFaults) -> None:
    assert [await produced(client) for _ in range(3)] == [ErrorCode.NONE] * 3
    faults.add(error("Produce", times=1))
    assert [await produced(client), await produced(client)] == [NOT_LEADER, ErrorCode.NONE]


async def test_other_apis_do_not_meet_it(client: Client, faults: AnswerFaults) -> None:
    faults.add(error("Produce"))
    assert (await client.ask(ListGroupsRequest())).error_code == ErrorCode.NONE


async def test_the_first_fault_that_a_request_meets_has_it(client: Client, faults: AnswerFaults) -> None:
    faults.add(error("Produce", ErrorCode.REQUEST_TIMED_OUT, times=1, topic="t", partition=1))
    faults.add(error("Produce", times=1))
    assert [await produced(client), await produced(client, 1)] == [NOT_LEADER, ErrorCode.REQUEST_TIMED_OUT]


async def test_of_a_produce_only_the_partition_that_is_meant_is_refused(client: Client, faults: AnswerFaults) -> None:
    faults.add(error("Produce", times=1, topic="t", partition=1))
    request: ProduceRequest = produce_request("t", make_batch(), 0)
    request.topic_data[0].partition_data += produce_request("t", make_batch(), 1).topic_data[0].partition_data
    (answer,) = (await client.ask(request, 9)).responses
    codes = {each.index: each.error_code for each in answer.partition_responses}
    assert codes == {0: ErrorCode.NONE, 1: NOT_LEADER}
    assert await produced(client, 1) is ErrorCode.NONE


async def test_a_topic_named_by_its_id_is_found(client: Client, faults: AnswerFaults, node: Node) -> None:
    topic_id = await node.create_topic("u")
    faults.add(error("Produce", times=1, topic="u"))
    request: ProduceRequest = produce_request("", make_batch(), 0)
    request.topic_data[0].topic_id = topic_id
    (answer,) = (await client.ask(request, 13)).responses
    assert (answer.topic_id, answer.partition_responses[0].error_code) == (topic_id, NOT_LEADER)


async def test_of_list_offsets_too(client: Client, faults: AnswerFaults) -> None:
    faults.add(error("ListOffsets", topic="t", partition=0))
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])
    (answer,) = (await client.ask(request)).topics
    assert {each.partition_index: each.error_code for each in answer.partitions} == {0: NOT_LEADER, 1: ErrorCode.NONE}


async def test_a_produce_without_an_answer_is_cut(client: Client, faults: AnswerFaults) -> None:
    faults.add(error("Produce", times=1))
    client.send(produce_request("t", make_batch(), acks=0), 9)
    client.expect_nothing()
    assert await client.is_closed_by_peer()


async def test_a_fetch_is_refused_for_one_partition_and_reads_the_other(client: Client, faults: AnswerFaults) -> None:
    assert [await produced(client), await produced(client, 1)] == [ErrorCode.NONE] * 2
    faults.add(error("Fetch", times=1, topic="t", partition=1))
    request = fetch_request(0, 1, wait_ms=LONG_MS)
    assert await fetched(client, request) == {0: (ErrorCode.NONE, True), 1: (NOT_LEADER, False)}
    assert await fetched(client, request) == {0: (ErrorCode.NONE, True), 1: (ErrorCode.NONE, True)}


async def test_a_partition_of_a_session_is_refused_though_the_request_names_none(
    client: Client, faults: AnswerFaults
) -> None:
    response = await client.ask(fetch_request(0, 1, epoch=0), 12)
    faults.add(error("Fetch", times=1, topic="t", partition=1))
    session_id = response.session_id
    assert session_id
    refused = await fetched(client, fetch_request(epoch=1, session_id=session_id, wait_ms=LONG_MS))
    assert refused == {1: (NOT_LEADER, False)}
    assert await fetched(client, fetch_request(epoch=2, session_id=session_id)) == {1: (ErrorCode.NONE, False)}


async def test_an_answer_is_delayed_though_the_work_is_done(client: Client, faults: AnswerFaults, node: Node) -> None:
    fault = faults.add(Cue(Act.DELAY, API["Produce"], times=1, hold_ms=LONG_MS))
    client.send(produce_request("t", make_batch()), 9)
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await until(lambda: topic.partitions[0].end_offset == 1)
    assert (fault.left, fault.holding) == (0, 1)
    assert faults.end(fault.number)
    response = await client.receive()
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_a_delay_ends_by_itself(client: Client, faults: AnswerFaults) -> None:
    faults.add(Cue(Act.DELAY, None, times=2, hold_ms=30))
    began_s = asyncio.get_running_loop().time()
    assert (await client.ask(ListGroupsRequest())).error_code == ErrorCode.NONE
    assert asyncio.get_running_loop().time() - began_s >= 0.03
    assert await produced(client) is ErrorCode.NONE
    await until(lambda: len(faults) == 0)


async def test_an_error_of_the_request_is_delayed_too(client: Client, faults: AnswerFaults) -> None:
    faults.add(Cue(Act.DELAY, None, times=1, hold_ms=10))
    request = produce_request("t", make_batch(), acks=5)
    (answer,) = (await client.ask(request, 9)).responses
    assert answer.partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_a_pause_holds_every_answer_until_it_is_ended(client: Client, faults: AnswerFaults, node: Node) -> None:
    fault = faults.add(Cue(Act.PAUSE, None, hold_ms=LONG_MS))
    other = await node.connect()
    client.send(produce_request("t", make_batch()), 9)
    other.send(ListGroupsRequest())
    await until(lambda: fault.holding == 2)
    faults.clear()
    assert (await other.receive()).error_code == ErrorCode.NONE
    await client.receive()


async def test_a_pause_ends_by_itself(client: Client, faults: AnswerFaults) -> None:
    faults.add(Cue(Act.PAUSE, None, hold_ms=20))
    async with asyncio.timeout(10):
        assert (await client.ask(ListGroupsRequest())).error_code == ErrorCode.NONE
    assert len(faults) == 0


async def test_batches_that_were_paused_keep_their_order(client: Client, faults: AnswerFaults) -> None:
    fault = faults.add(Cue(Act.PAUSE, API["Produce"], hold_ms=LONG_MS))
    for _ in range(3):
        client.send(produce_request("t", make_batch()), 9)
    await until(lambda: fault.holding == 3)
    faults.clear()
    client.send(produce_request("t", make_batch()), 9)
    responses = [await client.receive() for _ in range(4)]
    assert [each.responses[0].partition_responses[0].base_offset for each in responses] == [0, 1, 2, 3]


@pytest.mark.parametrize(("performed", "end_offset"), [(False, 0), (True, 1)])
async def test_a_connection_is_cut_before_the_work_or_after_it(
    client: Client, faults: AnswerFaults, node: Node, performed: bool, end_offset: int
) -> None:
    faults.add(Cue(Act.DISCONNECT, API["Produce"], times=1, performed=performed))
    client.send(produce_request("t", make_batch()), 9)
    assert await client.is_closed_by_peer()
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert topic.partitions[0].end_offset == end_offset
    assert await produced(await node.connect()) is ErrorCode.NONE


async def test_a_client_that_leaves_lets_a_fault_go(client: Client, faults: AnswerFaults) -> None:
    fault = faults.add(Cue(Act.DELAY, None, times=1, hold_ms=LONG_MS))
    client.send(ListGroupsRequest())
    await until(lambda: fault.holding == 1)
    client.abort()
    await until(lambda: len(faults) == 0)


async def test_a_node_that_stops_holds_nothing_back(client: Client, faults: AnswerFaults, node: Node) -> None:
    fault = faults.add(Cue(Act.PAUSE, None, hold_ms=LONG_MS))
    client.send(ListGroupsRequest())
    await until(lambda: fault.holding == 1)
    stopping = asyncio.ensure_future(node.server.stop())
    assert (await client.receive()).error_code == ErrorCode.NONE
    await stopping


async def test_what_is_served_without_faults_is_what_was_served_before(client: Client, faults: AnswerFaults) -> None:
    """Its lanes are open again, and nothing of it goes through here."""
    switched: list[Api] = []
    switch = faults.switch

    def note(api: Api) -> None:
        switched.append(api)
        switch(api)

    faults.switch = note
    faults.add(error("Produce", times=1))
    assert [await produced(client) for _ in range(2)] == [NOT_LEADER, ErrorCode.NONE]
    assert [api.serve is API["Produce"].serve for api in switched] == [False, True]
    assert switched[-1] is API["Produce"]
