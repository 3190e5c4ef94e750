"""A tablet started anew under a running broker: its clients are told, find the next leader epoch, and lose nothing."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.node.server import wall_clock_ms
from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.cell import MoveRefused, TabletUnknown
from pqbroker.storage.tablets.scheme import SCHEME_TABLET_ID
from pqbroker.storage.tablets.scheme_layout import FIRST_TABLET_ID
from pqbroker.storage.tablets.tablet import USER_CHANNEL
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.services.coordination.classic.test_handlers import beat, describe, form, join_request
from tests.broker.wire import Client
from tests.faults.load import Load, check

TABLET = FIRST_TABLET_ID
Start = Callable[..., Awaitable[Node]]


def owner(node: Node) -> CellOwner:
    return node.server._cell


def fetch_request(offset: int, *, wait_ms: int = 0, min_bytes: int = 1, epoch: int = -1) -> FetchRequest:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    topic = FetchTopic(topic="t", partitions=[partition])
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, session_id=0, topics=[topic])


async def fetch(client: Client, offset: int, **options: Any) -> Any:
    return (await client.ask(fetch_request(offset, **options), 11)).responses[0].partitions[0]


async def leader_epoch(client: Client) -> int:
    topic = MetadataRequestTopic(topic_id=bytes(16), name="t")
    epoch: int = (await client.ask(MetadataRequest(topics=[topic]), 9)).topics[0].partitions[0].leader_epoch
    return epoch


@pytest.mark.spec("G.2")
async def test_a_restarted_tablet_serves_what_was_there_under_the_next_leader_epoch(
    node: Node, client: Client
) -> None:
    await node.create_topic("t", 2)
    assert (await node.produce("t", b"before")).base_offset == 0
    assert await owner(node).restart_tablet(TABLET) == 2
    assert await leader_epoch(client) == 2
    assert (await node.produce("t", b"after")).base_offset == 1
    assert (await node.produce("t", b"other", partition=1)).base_offset == 0
    found = await fetch(client, 0, epoch=2)
    assert (found.error_code, found.high_watermark) == (0, 2)
    assert (await fetch(client, 0, epoch=1)).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.spec("G.2")
async def test_clients_that_wait_at_a_tablet_do_not_notice_its_restart(node: Node) -> None:
    await node.create_topic("t")
    reader, writer = await node.connect(), await node.connect()
    reader.send(fetch_request(0, wait_ms=30_000, min_bytes=1 << 20), 11)
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await until(lambda: bool(topic.partitions[0].watchers))
    node.engine.faults.hold()
    queue = topic.partitions[0].writer.queue
    writer.send(produce_request("t", make_batch(b"in flight")), 9)
    await until(lambda: queue.in_flight_bytes > 0 and not queue.items)
    writer.send(produce_request("t", make_batch(b"waits")), 9)
    await until(lambda: len(queue) == 1)
    restart = asyncio.ensure_future(owner(node).restart_tablet(TABLET))
    await asyncio.sleep(0)
    writer.send(produce_request("t", make_batch(b"late")), 9)
    await until(lambda: len(queue) == 2)
    node.engine.faults.release()
    answers = [(await writer.receive()).responses[0].partition_responses[0] for _ in range(3)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 2)]
    parked = (await reader.receive()).responses[0].partitions[0]
    assert (parked.error_code, parked.high_watermark) == (0, 3)
    await restart
    assert (await node.produce("t", b"after")).base_offset == 3


async def test_a_restart_that_is_refused_leaves_the_tablet_serving_in_its_epoch(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"before")
    node.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await owner(node).restart_tablet(TABLET)
    assert await leader_epoch(client) == 1
    assert (await node.produce("t", b"after")).base_offset == 1
    assert await owner(node).restart_tablet(TABLET) == 2
    assert (await node.produce("t", b"at last")).base_offset == 2
    assert (await fetch(client, 0)).high_watermark == 3


async def test_a_move_to_nowhere_and_a_tablet_that_is_not_there_are_refused(node: Node) -> None:
    with pytest.raises(TabletUnknown):
        await owner(node).restart_tablet(TABLET)
    with pytest.raises(MoveRefused):
        await owner(node).move_channel(SCHEME_TABLET_ID, USER_CHANNEL, 1)


@pytest.mark.spec("B.6", "4.30")
async def test_a_restarted_coordinator_keeps_its_groups_and_sends_away_who_joins_meanwhile(start: Start) -> None:
    node = await start(group_initial_rebalance_delay_ms=0)
    client = await node.connect()
    joined = await form(client)
    tablet = _tablet("g")
    joiner = await node.connect()
    joiner.send(join_request(group_instance_id="other"), 9)
    coordinators = node.server.node.cell.current.coordinators
    await until(lambda: len(_described(coordinators)) == 2)
    assert await owner(node).restart_tablet(tablet) == 2
    assert (await joiner.receive()).error_code == ErrorCode.NOT_COORDINATOR
    assert await beat(client, joined.member_id, joined.generation_id) == 0
    assert (await describe(client)).group_state == "Stable"
    node.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await owner(node).restart_tablet(tablet)
    assert await beat(client, joined.member_id, joined.generation_id) == 0


async def test_while_a_coordinator_restarts_the_groups_of_others_are_described(start: Start) -> None:
    node = await start(group_initial_rebalance_delay_ms=0)
    client = await node.connect()
    await form(client)
    other = next(name for name in map(str, range(100)) if _tablet(name) != _tablet("g"))
    node.engine.faults.hold()
    restart = asyncio.ensure_future(owner(node).restart_tablet(_tablet("g")))
    await until(lambda: not _is_coordinated(node, "g"))
    client.send(DescribeGroupsRequest(groups=["g", other]), 6)
    of_restarted, of_other = (await client.receive()).groups
    assert (of_restarted.group_id, of_restarted.error_code) == ("g", ErrorCode.NOT_COORDINATOR)
    assert (of_other.group_id, of_other.error_code) == (other, ErrorCode.GROUP_ID_NOT_FOUND)
    node.engine.faults.release()
    await restart
    assert (await describe(client)).group_state == "Stable"


def _is_coordinated(node: Node, group_id: str) -> bool:
    try:
        node.server.node.cell.current.coordinators.describe(group_id)
    except KafkaError:
        return False
    return True


def _tablet(group_id: str) -> TabletId:
    return COORDINATOR_IDS[zlib.crc32(group_id.encode()) % len(COORDINATOR_IDS)]


def _described(coordinators: Any) -> Any:
    return coordinators.describe("g").image.members


async def new_producer(client: Client) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    producer_id: int = (await client.ask(request, 4)).producer_id
    return producer_id


@pytest.mark.spec("B.6")
async def test_a_restarted_scheme_knows_its_topics_and_gives_no_id_twice(node: Node, client: Client) -> None:
    ids = {await node.create_topic("t")}
    producers = [await new_producer(client)]
    assert await owner(node).restart_tablet(SCHEME_TABLET_ID) == 2
    ids.add(await node.create_topic("u"))
    node.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await owner(node).restart_tablet(SCHEME_TABLET_ID)
    ids.add(await node.create_topic("v"))
    producers.append(await new_producer(client))
    assert len(ids) == 3
    assert len(set(producers)) == 2
    assert sorted(node.server.node.cell.current.topics.names()) == ["t", "u", "v"]
    assert (await node.produce("t", b"a")).error_code == 0
    assert await owner(node).restart_tablet(SCHEME_TABLET_ID) == 3


@pytest.mark.spec("G.2")
async def test_restarts_under_load_lose_nothing_repeat_nothing_and_keep_the_order(node: Node) -> None:
    node.clock.now_ms = wall_clock_ms()
    await node.create_topic("t", 4)
    address = str(node.server.kafka_address)

    def run(restarts: list[Any]) -> int:
        with Load(address, "t", [0, 1, 2, 3, 3], seed=1) as load:
            for restart in restarts:
                load.await_acknowledgements(20)
                asyncio.run_coroutine_threadsafe(restart(), loop).result(15)
            load.await_acknowledgements(20)
            load.settle()
        assert [book.failures for book in load.books] == [[]] * 5
        return check(load, address)

    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(run, [lambda: owner(node).restart_tablet(TABLET)] * 8) >= 900
