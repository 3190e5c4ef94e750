"""APIs of transactional producers over sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.kafka.handlers import fetch
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.list_transactions import ListTransactionsRequest
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pqbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pqbroker.protocol.records import batches
from tests.broker.conftest import Node, make_batch, produce_request
from tests.broker.kafka.handlers.test_offsets import commit, delete
from tests.broker.kafka.transacting import WireProducer, committed_values, produced
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]
MINUTE_MS = 60_000


@pytest.fixture
async def topic(node: Node) -> str:
    await node.create_topic("t", 3)
    return "t"


@pytest.fixture
async def producer(topic: str, client: Client) -> WireProducer:
    """A producer that has begun."""
    producer = WireProducer(client)
    assert await producer.begin() is ErrorCode.NONE
    return producer


async def fetch_offset(client: Client, index: int = 0, *, is_stable: bool = False) -> tuple[int, str]:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[index])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    answer = await client.ask(OffsetFetchRequest(groups=groups, require_stable=is_stable), 8)
    found = answer.groups[0].topics[0].partitions[0]
    return found.committed_offset, ErrorCode(found.error_code).name


@pytest.mark.parametrize("version", [3, 4])
async def test_the_second_transaction_protocol_is_finalized(client: Client, version: int) -> None:
    answer = await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert finalized["transaction.version"] == 2
    supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
    assert (("transaction.version", 0, 2) in supported) is (version >= 4)


async def test_a_transactional_id_has_this_node_as_its_coordinator(node: Node, client: Client) -> None:
    answer = await client.ask(FindCoordinatorRequest(key="x", key_type=1), 3)
    assert (answer.error_code, answer.node_id) == (0, 1)


async def test_a_producer_that_begins_again_keeps_its_id_and_gets_the_next_epoch(producer: WireProducer) -> None:
    first = producer.claim
    await producer.begin()
    assert producer.claim == (first[0], first[1] + 1)


@pytest.mark.parametrize(
    ("timeout_ms", "code"), [(0, 50), (-1, 50), (900_000, 0), (900_001, 50)],
)  # fmt: skip
async def test_the_longest_timeout_is_transaction_max_timeout_ms(client: Client, timeout_ms: int, code: int) -> None:
    assert await WireProducer(client).begin(timeout_ms=timeout_ms) == code


async def test_an_empty_transactional_id_is_invalid_everywhere(topic: str, client: Client) -> None:
    producer = WireProducer(client, "")
    assert await producer.begin() is ErrorCode.INVALID_REQUEST
    assert await producer.add((topic, 0)) == {("t", 0): "INVALID_REQUEST"}
    assert await producer.end(is_commit=True) == "INVALID_REQUEST"
    assert await producer.add_group() == "INVALID_REQUEST"
    assert await producer.commit_offset(topic, 1) == "INVALID_REQUEST"


@pytest.mark.parametrize(("end_version", "produce_version"), [(0, 3), (3, 11)])
async def test_a_transaction_of_version_1(
    producer: WireProducer, client: Client, end_version: int, produce_version: int
) -> None:
    for number, is_commit in enumerate((True, False, True)):
        assert set((await producer.add(("t", 0), ("t", 2))).values()) == {"NONE"}
        for index in (0, 2):
            assert await producer.produce("t", b"%d" % number, index, version=produce_version) == "NONE"
        assert await producer.end(is_commit=is_commit, version=end_version) == "NONE"
    await producer.until_state("CompleteCommit")
    assert [await committed_values(client, "t", index) for index in range(3)] == [[b"0", b"2"], [], [b"0", b"2"]]


async def test_a_transaction_of_version_2_adds_its_partitions_itself_and_gets_epochs(
    producer: WireProducer, client: Client
) -> None:
    begun_at = producer.claim
    for number, is_commit in enumerate((True, False, True)):
        for index in (0, 2):
            assert await producer.produce("t", b"%d" % number, index, version=12) == "NONE"
        assert sorted((await producer.state()).topics[0].partitions) == [0, 2]
        assert await producer.end(is_commit=is_commit, version=5) == "NONE"
    assert producer.claim == (begun_at[0], begun_at[1] + 3)
    await producer.until_state("CompleteCommit")
    assert [await committed_values(client, "t", index) for index in range(3)] == [[b"0", b"2"], [], [b"0", b"2"]]


async def test_batches_behind_one_whose_partition_is_being_added_stay_in_order(
    producer: WireProducer, client: Client
) -> None:
    for number in range(5):
        client.send(producer.produce_request("t", b"%d" % number), 12)
    assert [produced(await client.receive()) for _ in range(5)] == ["NONE"] * 5
    await producer.end(is_commit=True, version=5)
    await producer.until_state("CompleteCommit")
    assert await committed_values(client, "t") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(("version", "code"), [(9, "INVALID_TXN_STATE"), (11, "TRANSACTION_ABORTABLE")])
async def test_a_batch_for_a_partition_that_was_not_added_is_refused(
    producer: WireProducer, version: int, code: str
) -> None:
    assert await producer.produce("t", b"v", version=version) == code
    await producer.add(("t", 1))
    assert await producer.produce("t", b"v", version=version) == code


async def test_a_transactional_batch_needs_a_transactional_id(producer: WireProducer, client: Client) -> None:
    await producer.add(("t", 0))
    request = producer.produce_request("t", b"v")
    request.transactional_id = None
    assert produced(await client.ask(request, 11)) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


async def test_a_plain_batch_of_a_transactional_producers_request_is_taken(
    producer: WireProducer, client: Client
) -> None:
    request = produce_request("t", make_batch(b"plain"))
    request.transactional_id = "x"
    assert produced(await client.ask(request, 11)) == "NONE"


@pytest.mark.parametrize(("version", "code"), [(11, "INVALID_PRODUCER_EPOCH"), (12, "INVALID_PRODUCER_EPOCH")])
async def test_an_earlier_instance_is_fenced(
    producer: WireProducer, node: Node, version: int, code: str
) -> None:
    later = WireProducer(await node.connect())
    assert await later.begin() is ErrorCode.NONE
    assert await producer.produce("t", b"v", version=version) == code
    assert await producer.add(("t", 0), version=2) == {("t", 0): "PRODUCER_FENCED"}
    assert await producer.add(("t", 0), version=1) == {("t", 0): "INVALID_PRODUCER_EPOCH"}
    assert [await producer.end(is_commit=True, version=version) for version in (1, 2, 5)] == [
        "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "PRODUCER_FENCED",
    ]  # fmt: skip
    assert [await producer.add_group(version=version) for version in (1, 2)] == [
        "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED",
    ]  # fmt: skip
    assert await producer.commit_offset("t", 1) == "INVALID_PRODUCER_EPOCH"
    assert [await producer.begin(version, names=True) for version in (3, 4)] == [47, 90]


async def test_a_later_instance_aborts_what_an_earlier_one_left_open(
    producer: WireProducer, node: Node, client: Client
) -> None:
    await producer.add(("t", 0))
    await producer.produce("t", b"left open")
    later = WireProducer(await node.connect())
    assert await later.begin() is ErrorCode.CONCURRENT_TRANSACTIONS
    while (code := await later.begin()) is not ErrorCode.NONE:
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert later.claim == (producer.claim[0], producer.claim[1] + 2)
    assert await committed_values(client, "t") == []


async def test_an_unknown_partition_leaves_the_others_alone(producer: WireProducer) -> None:
    assert await producer.add(("t", 0), ("t", 3), ("nope", 0)) == {
        ("t", 0): "OPERATION_NOT_ATTEMPTED", ("t", 3): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nope", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }  # fmt: skip
    assert (await producer.state()).transaction_state == "Empty"


async def test_brokers_add_and_verify_partitions_of_several_transactions(
    producer: WireProducer, client: Client
) -> None:
    async def ask(index: int, version: int, *, verify_only: bool, name: str = "x") -> str:
        asked = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=producer.claim[0], producer_epoch=producer.claim[1],
            verify_only=verify_only, topics=[AddPartitionsToTxnTopic(name="t", partitions=[index])],
        )  # fmt: skip
        answer = await client.ask(AddPartitionsToTxnRequest(transactions=[asked]), version)
        result = answer.results_by_transaction[0]
        assert result.transactional_id == name
        return ErrorCode(result.topic_results[0].results_by_partition[0].partition_error_code).name

    assert await ask(0, 4, verify_only=False) == "NONE"
    assert await ask(0, 4, verify_only=True) == "NONE"
    assert await ask(1, 4, verify_only=True) == "TRANSACTION_ABORTABLE"
    assert await ask(1, 5, verify_only=True) == "TRANSACTION_ABORTABLE"
    assert await ask(1, 5, verify_only=True, name="y") == "INVALID_PRODUCER_ID_MAPPING"


async def test_an_end_that_is_sent_twice_is_answered_twice_and_the_opposite_is_refused(producer: WireProducer) -> None:
    assert await producer.end(is_commit=True) == "INVALID_TXN_STATE"
    await producer.add(("t", 0))
    await producer.end(is_commit=True)
    await producer.until_state("CompleteCommit")
    assert await producer.end(is_commit=True) == "NONE"
    assert await producer.end(is_commit=False) == "INVALID_TXN_STATE"


async def test_an_end_of_version_2_that_is_sent_twice_gives_the_same_epoch(producer: WireProducer) -> None:
    await producer.produce("t", b"v", version=12)
    before = producer.claim
    await producer.end(is_commit=True, version=5)
    await producer.until_state("CompleteCommit")
    after, producer.claim = producer.claim, before
    assert await producer.end(is_commit=True, version=5) == "NONE"
    assert producer.claim == after


async def test_a_transaction_times_out_and_fences_its_producer(
    producer: WireProducer, node: Node, client: Client
) -> None:
    await producer.add(("t", 0))
    await producer.produce("t", b"late")
    node.clock.now_ms += MINUTE_MS - 1
    node.server.node.cell.current.coordinators.advance(MINUTE_MS - 1)
    assert (await producer.state()).transaction_state == "Ongoing"
    node.clock.now_ms += 1
    node.server.node.cell.current.coordinators.advance(1)
    found = await producer.until_state("CompleteAbort")
    assert (found.producer_epoch, found.transaction_start_time_ms) == (producer.claim[1] + 1, -1)
    assert await producer.end(is_commit=True) == "PRODUCER_FENCED"
    assert await producer.produce("t", b"later") == "INVALID_PRODUCER_EPOCH"
    assert await committed_values(client, "t") == []


async def test_an_unused_transactional_id_is_forgotten(producer: WireProducer, node: Node) -> None:
    week_ms = 604_800_000
    expire = node.server.node.cell.current.transactional_producers.expire
    node.clock.now_ms += week_ms - 1
    await expire()
    assert (await producer.state()).transaction_state == "Empty"
    await producer.add(("t", 0))
    node.clock.now_ms += 2 * week_ms
    await expire()
    assert (await producer.state()).transaction_state == "Ongoing"
    await producer.end(is_commit=True)
    await producer.until_state("CompleteCommit")
    node.clock.now_ms += week_ms
    await expire()
    assert (await producer.state()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert await producer.add(("t", 0)) == {("t", 0): "INVALID_PRODUCER_ID_MAPPING"}


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_offsets_count_once_their_transaction_commits(
    producer: WireProducer, client: Client, version: int
) -> None:
    end_version = 5 if version == 5 else 3
    if version < 5:
        code = "TRANSACTION_ABORTABLE" if version == 4 else "INVALID_TXN_STATE"
        assert await producer.commit_offset("t", 7, version=version) == code
        assert await producer.add_group() == "NONE"
    assert await producer.commit_offset("t", 7, version=version) == "NONE"
    assert await fetch_offset(client) == (-1, "NONE")
    assert await fetch_offset(client, is_stable=True) == (-1, "UNSTABLE_OFFSET_COMMIT")
    assert await fetch_offset(client, 1, is_stable=True) == (-1, "NONE")
    await producer.end(is_commit=True, version=end_version)
    await producer.until_state("CompleteCommit")
    assert await fetch_offset(client, is_stable=True) == (7, "NONE")


async def test_offsets_of_an_aborted_transaction_are_forgotten(producer: WireProducer, client: Client) -> None:
    await commit(client, {("t", 0): 3})
    await producer.commit_offset("t", 7, version=5)
    await producer.end(is_commit=False, version=5)
    assert await fetch_offset(client, is_stable=True) == (3, "NONE")
    await producer.until_state("CompleteAbort")
    assert await fetch_offset(client, is_stable=True) == (3, "NONE")


async def test_a_plain_commit_that_comes_later_stays(producer: WireProducer, node: Node, client: Client) -> None:
    await commit(client, {("t", 0): 1, ("t", 1): 1})
    await producer.commit_offset("t", 7, version=5)
    await producer.commit_offset("t", 8, partition=1, version=5)
    node.clock.now_ms += 5
    await commit(client, {("t", 0): 3})
    await producer.end(is_commit=True, version=5)
    await producer.until_state("CompleteCommit")
    assert await fetch_offset(client, 0) == (3, "NONE")
    assert await fetch_offset(client, 1) == (8, "NONE")


async def test_offsets_that_were_deleted_are_not_committed_later(producer: WireProducer, client: Client) -> None:
    await commit(client, {("t", index): 1 for index in range(3)})
    for index in range(2):
        assert await producer.commit_offset("t", 7, partition=index, version=5) == "NONE"
    await delete(client, ("t", 1))
    assert await fetch_offset(client, 1, is_stable=True) == (-1, "NONE")
    await producer.end(is_commit=True, version=5)
    await producer.until_state("CompleteCommit")
    assert [(await fetch_offset(client, index))[0] for index in range(3)] == [7, -1, 1]
    assert await producer.commit_offset("t", 8, version=5) == "NONE"
    assert (await client.ask(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
    await producer.end(is_commit=True, version=5)
    await producer.until_state("CompleteCommit")
    assert [(await fetch_offset(client, index))[0] for index in range(3)] == [-1, -1, -1]


async def test_offsets_are_refused_as_plain_commits_are(
    producer: WireProducer, node: Node, start: Start
) -> None:
    assert await producer.commit_offset("nope", 1, version=5) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert await producer.commit_offset("t", 1, partition=9, version=5) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert await producer.commit_offset("t", 1, version=5, metadata="x" * 4097) == "OFFSET_METADATA_TOO_LARGE"
    assert await producer.commit_offset("t", 1, version=5, generation_id=3, member_id="m") == "ILLEGAL_GENERATION"
    assert (await producer.state()).transaction_state == "Empty"


async def test_a_deleted_topic_is_left_out_of_the_end(producer: WireProducer, node: Node, client: Client) -> None:
    await node.create_topic("gone")
    await producer.add(("t", 0), ("gone", 0))
    await producer.produce("t", b"v")
    await producer.produce("gone", b"v")
    await producer.add_group()
    await producer.commit_offset("gone", 1)
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1000))
    assert [(each.topic, each.partitions) for each in (await producer.state()).topics] == [("t", [0])]
    await producer.end(is_commit=True)
    await producer.until_state("CompleteCommit")
    assert await committed_values(client, "t") == [b"v"]


async def test_ids_are_listed_and_described(producer: WireProducer, node: Node, client: Client) -> None:
    other = WireProducer(client, "other")
    await other.begin()
    await other.add(("t", 2), ("t", 0))
    node.clock.now_ms += 1000

    async def listed(version: int = 2, **filters: Any) -> list[tuple[str, str]]:
        answer = await client.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]

    assert await listed(0) == [("other", "Ongoing"), ("x", "Empty")]
    assert await listed(state_filters=["Ongoing", "Nope"]) == [("other", "Ongoing")]
    assert await listed(state_filters=["Nope"]) == []
    assert await listed(producer_id_filters=[producer.claim[0]]) == [("x", "Empty")]
    assert await listed(duration_filter=1000, state_filters=["Ongoing"]) == []
    assert await listed(duration_filter=999, state_filters=["Ongoing"]) == [("other", "Ongoing")]
    assert await listed(transactional_id_pattern="ot.*") == [("other", "Ongoing")]
    assert await listed(transactional_id_pattern="o") == []
    found = await other.state()
    assert (found.transaction_timeout_ms, found.producer_id, found.producer_epoch) == (MINUTE_MS, *other.claim)
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 2])]
    assert node.clock.now_ms - found.transaction_start_time_ms == 1000
    answer = await client.ask(DescribeTransactionsRequest(transactional_ids=["nope", ""]))
    assert [each.error_code for each in answer.transaction_states] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip


@pytest.mark.parametrize("pattern", ["(a|b)", "[", ".*.*.*", "a?a?a?"])
async def test_a_pattern_that_is_invalid_or_could_take_long_is_refused(client: Client, pattern: str) -> None:
    answer = await client.ask(ListTransactionsRequest(transactional_id_pattern=pattern))
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def end_by_marker(client: Client, claim: tuple[int, int], *, is_commit: bool = False, topic: str = "t") -> str:
    marker = WritableTxnMarker(
        producer_id=claim[0], producer_epoch=claim[1], transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )  # fmt: skip
    answer = await client.ask(WriteTxnMarkersRequest(markers=[marker]))
    assert answer.markers[0].producer_id == claim[0]
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code).name


async def test_a_marker_of_an_operator_aborts_the_whole_transaction(producer: WireProducer, client: Client) -> None:
    await producer.add(("t", 0), ("t", 2))
    await producer.produce("t", b"v")
    await producer.produce("t", b"v", 2)
    assert await end_by_marker(client, producer.claim, is_commit=True) == "INVALID_TXN_STATE"
    assert await end_by_marker(client, (producer.claim[0], producer.claim[1] - 1)) == "INVALID_PRODUCER_EPOCH"
    assert await end_by_marker(client, producer.claim) == "NONE"
    assert (await producer.state()).transaction_state == "CompleteAbort"
    assert await producer.end(is_commit=True) == "PRODUCER_FENCED"
    assert [await committed_values(client, "t", index) for index in (0, 2)] == [[], []]


async def test_a_marker_for_a_producer_that_nobody_knows_is_written_alone(topic: str, client: Client) -> None:
    assert await end_by_marker(client, (999, 3)) == "NONE"
    assert await end_by_marker(client, (999, 2)) == "INVALID_PRODUCER_EPOCH"
    assert await end_by_marker(client, (999, 3), topic="nope") == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_transactions_hold_as_many_bytes_as_their_limit(start: Start) -> None:
    node = await start(transactional_id_bytes_max=4096)
    await node.create_topic("t", 100)
    producer = WireProducer(await node.connect())
    await producer.begin()
    assert set((await producer.add(*(("t", index) for index in range(40)))).values()) == {"NONE"}
    assert set((await producer.add(*(("t", index) for index in range(100)))).values()) == {"POLICY_VIOLATION"}
    assert await producer.commit_offset("t", 1, version=5, metadata="x" * 4000) == "INVALID_COMMIT_OFFSET_SIZE"
    assert await producer.end(is_commit=True) == "NONE"


async def test_transactional_ids_hold_as_many_bytes_as_their_limit_together(start: Start) -> None:
    node = await start(transactional_ids_bytes_max=65_536)
    client = await node.connect()
    codes = [await WireProducer(client, f"id-{number}").begin() for number in range(70)]
    assert codes[0] is ErrorCode.NONE
    assert codes[-1] is ErrorCode.POLICY_VIOLATION
    assert await WireProducer(client, "id-0").begin() is ErrorCode.NONE


async def test_ids_of_one_address_leave_room_for_those_of_another(start: Start) -> None:
    node = await start(transactional_ids_bytes_max=65_536)
    host, port = node.server.kafka_address.host, node.server.kafka_address.port

    async def connect(own: str) -> Client:
        return Client(*await asyncio.open_connection(host, port, local_addr=(own, 0)))

    filling, other = await connect("127.0.0.2"), await connect("127.0.0.3")
    made = 0
    while await WireProducer(filling, f"id-{made}").begin() is ErrorCode.NONE:
        made += 1
    assert made > 40
    assert await WireProducer(other, "other").begin() is ErrorCode.NONE
    await filling.close()
    await other.close()


async def test_a_next_transaction_waits_for_the_markers_of_the_one_before(
    producer: WireProducer, client: Client
) -> None:
    """Nothing is CONCURRENT_TRANSACTIONS where the end is quick, and a client does not have to retry."""
    for _ in range(20):
        assert await producer.add(("t", 0)) == {("t", 0): "NONE"}
        assert await producer.end(is_commit=True) == "NONE"


async def test_two_instances_side_by_side_never_both_write(node: Node, topic: str, client: Client) -> None:
    producers = [WireProducer(await node.connect()) for _ in range(2)]

    async def work(own: WireProducer, name: bytes) -> int:
        done = 0
        for number in range(20):
            if await own.begin() is not ErrorCode.NONE:
                continue
            if set((await own.add(("t", 0))).values()) != {"NONE"}:
                continue
            if await own.produce("t", b"%b-%d" % (name, number)) == "NONE":
                done += await own.end(is_commit=True) == "NONE"
        return done

    done = sum(await asyncio.gather(*(work(each, b"%d" % number) for number, each in enumerate(producers))))
    await producers[0].until_state("CompleteCommit", "CompleteAbort", "Empty")
    assert len(await committed_values(client, "t")) == done


async def test_an_answer_names_so_many_aborted_transactions_and_the_next_one_continues(
    node: Node, producer: WireProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "ABORTED_NAMED_MAX", 2)
    for number in range(5):
        assert await producer.produce("t", b"%d" % number, version=12) == "NONE"
        assert await producer.end(is_commit=False, version=5) == "NONE"
    await node.produce("t", b"plain")
    client, offset, named = await node.connect(), 0, list[int]()
    while offset < 11:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[asked])]
        request = FetchRequest(max_wait_ms=60_000, min_bytes=1 << 19, isolation_level=1, topics=topics)
        if offset == 0:
            request.min_bytes = 1
        else:
            request.max_wait_ms = 0
        data = (await client.ask(request, 12)).responses[0].partitions[0]
        found = [each.first_offset for each in data.aborted_transactions]
        assert len(found) <= 3
        named += [each for each in found if each >= offset]
        records = bytes(data.records)
        headers = [header for _, header in batches(records)]
        assert headers[0].base_offset == offset
        offset = headers[-1].base_offset + 1
    assert named == [0, 2, 4, 6, 8]
