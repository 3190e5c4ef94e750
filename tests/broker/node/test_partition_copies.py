"""Offsets in partitions of another node: copied, changed over the link, never "none" while they are not known."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.node import partition_copies
from pqbroker.broker.node.admissions import Admissions
from pqbroker.broker.node.partition_calls import OffsetsAsked, OffsetsCommitted, OffsetsTold, TransactionEnded
from pqbroker.broker.node.partition_copies import PartitionCopies
from pqbroker.broker.node.served_partitions import ServedPartitions
from pqbroker.broker.peers.peer_link import PeerLink, PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call
from pqbroker.broker.services.coordination.coordinators import COORDINATORS
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.elsewhere import PartitionAway
from pqbroker.pq.serving.offsets import GroupOffsets
from pqbroker.pq.serving.tablet import NodeShare, PqTablet
from pqbroker.protocol.control_records import EndMarker
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.outcome import Outcome
from tests.pq.rig import Node, transactional

CELL = CellId(2)
PLACES = [("t", 0), ("t", 1), ("t", 2)]
TURNS = 20
"""Turns of the loop after which everything waits that has nothing to do."""


class TwoNodes:
    """The first node's copies, and a node with topic t, which has one tablet of two partitions and one of one."""

    generation = 7
    """Generation of the coordinator tablets."""

    async def start(self) -> "TwoNodes":
        self.other = await Node().start()
        topic = await self.other.topics.create("t", 3, {"pq.partitions.per.tablet": "2"})
        self.admissions = Admissions(self.coordinate)
        self.served = ServedPartitions(lambda: cast(Any, SimpleNamespace(topics=self.other.topics)), self.admissions)
        self.elsewhere: dict[CellId, dict[TabletId, int]] = {}
        self.link = cast(PeerLink, self)
        self.behind: Callable[[PeerMethod], None] = lambda _: None
        self.asked: list[PeerMethod] = []
        record = replace(topic.record, cells=(CELL,) * 2)
        share = NodeShare(self.other.topics.memory, lambda: 0)
        cells = OpenCells(self.other.host)
        tablets = {}
        for number, (tablet_id, _, indexes) in enumerate(record.spans()):
            tablets[tablet_id] = stand_in = PqTablet("t", indexes, topic.settings(number), share, lambda: None)
            stand_in.await_cell(cells.absent_storage(tablet_id))
        partitions = [tablets[tablet_id].partitions[index] for tablet_id, _, span in record.spans() for index in span]
        known = SimpleNamespace(record=record, tablets=tablets, partitions=partitions)
        self.offsets = GroupOffsets(
            lambda name, index: partitions[index] if name == "t" and index < 3 else None, takes_copies=True
        )
        self.offsets.learn("t", partitions)
        topics = SimpleNamespace(offsets=self.offsets, get=lambda _: known, names=lambda: ["t"], by_id=lambda _: known)
        coordinator = SimpleNamespace(generation=self.generation)
        coordinators = SimpleNamespace(is_serving=True, tablets=[coordinator] * COORDINATORS)
        opened = cast(Any, SimpleNamespace(topics=topics, coordinators=coordinators))
        self.copies = PartitionCopies(lambda: opened, self.elsewhere, lambda _: self.link, 1.0)
        return self

    async def coordinate(self, payload: bytes) -> bytes:
        """Answer questions of the other node for batches: it has none."""
        raise PeerRefused("nothing is coordinated here")

    def tell(self) -> None:
        """Have the first node know which tablets the other one runs."""
        tablets = self.other.topics.get("t")
        assert tablets is not None
        self.elsewhere[CELL] = {one: tablet.kv.storage.generation for one, tablet in tablets.tablets.items()}
        self.copies.follow()

    async def ask(self, payload: bytes, timeout_s: float) -> bytes:
        """Answer as the other node does, over a link that `behind` may break."""
        method, head, _ = decode_peer_call(payload)
        self.asked.append(method)
        answer = await self.served.answer(method, head)
        self.behind(method)
        return answer

    async def know(self) -> None:
        """Return once all offsets are known."""
        self.tell()
        running = asyncio.ensure_future(self.copies.run())
        async with asyncio.timeout(20):
            while not self.offsets.are_known:  # noqa: ASYNC110 (nobody sets an event)
                await asyncio.sleep(0)
        running.cancel()

    async def commit(self, *offsets: int | None) -> list[ErrorCode | None]:
        states = [None if offset is None else ConsumerOffset(offset, metadata="m") for offset in offsets]
        outcomes = await self.offsets.commit("g", dict(zip(PLACES, states, strict=False)))
        return [None if refusal is None else refusal.code for refusal in outcomes.values()]

    async def commit_in_order(self, offset: int) -> list[ErrorCode | None]:
        """Commit in partition 0, as a request does."""
        committed = {PLACES[0]: ConsumerOffset(offset)}
        outcomes = await self.offsets.held.commit("g", committed, lambda left: self.offsets.commit("g", left))
        return [None if refusal is None else refusal.code for refusal in outcomes.values()]

    def stored(self) -> list[int | None]:
        """Return the offsets that the other node has."""
        topic = self.other.topics.get("t")
        assert topic is not None
        found = [server.consumers.get("g") for server in topic.partitions]
        return [None if state is None else state.offset for state in found]

    def known(self) -> list[int | None]:
        found = [self.offsets.at("g", place) for place in PLACES]
        return [None if state is None else state.offset for state in found]


async def refusal_of(asked: Callable[[], Any]) -> ErrorCode:
    try:
        found = asked()
        if isinstance(found, Outcome):
            await found
    except KafkaError as refused:
        return refused.code
    raise AssertionError(f"it was not refused: {found}")


async def test_offsets_of_another_node_are_never_none_before_they_are_known() -> None:
    both = await TwoNodes().start()
    await both.other.topics.offsets.commit("g", {("t", 1): ConsumerOffset(5)})
    for look in (both.known, lambda: both.offsets.of("g"), lambda: both.offsets.of("nobody")):
        assert await refusal_of(look) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await both.commit(1) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    await both.know()
    assert both.known() == [None, 5, None]
    assert both.offsets.of("nobody") == {}
    assert both.offsets.groups() == ["g"]


async def test_offsets_of_a_tablet_that_has_left_are_not_none_after_another_one_starts() -> None:
    node = await Node().start()
    topic = await node.topics.create("t", 2, {"pq.partitions.per.tablet": "1"})
    await node.topics.offsets.commit("g", {("t", 1): ConsumerOffset(5)})
    first, second = topic.tablets
    topic.tablets[second].lose()
    await node.host.restart(first)
    offsets = node.topics.offsets
    assert offsets.at("nobody", ("t", 0)) is None
    assert await refusal_of(lambda: offsets.at("nobody", ("t", 1))) is ErrorCode.NOT_COORDINATOR
    assert await refusal_of(lambda: offsets.of("g")) is ErrorCode.NOT_COORDINATOR
    await node.host.restart(second)
    assert (offsets.at("nobody", ("t", 1)), offsets.at("g", ("t", 1))) == (None, ConsumerOffset(5))


async def test_what_a_group_commits_is_stored_at_the_node_of_each_partition() -> None:
    both = await TwoNodes().start()
    await both.know()
    assert await both.commit(1, 2, 3) == [None] * 3
    assert both.stored() == both.known() == [1, 2, 3]
    assert await both.commit(None, 7) == [None] * 2
    assert both.stored() == both.known() == [None, 7, 3]
    await both.other.restart()
    both.tell()
    assert await refusal_of(both.known) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await both.know()
    assert both.known() == [None, 7, 3]


async def test_many_offsets_come_page_by_page() -> None:
    both = await TwoNodes().start()
    for number in range(600):
        await both.other.topics.offsets.commit(f"g{number}", {("t", number % 3): ConsumerOffset(number)})
    await both.know()
    assert both.asked == [PeerMethod.COPY_OFFSETS] * 2
    for number in range(600):
        assert both.offsets.of(f"g{number}") == {("t", number % 3): ConsumerOffset(number)}


async def test_a_commit_with_an_outcome_that_nobody_knows_leaves_nothing_known() -> None:
    both = await TwoNodes().start()
    await both.know()

    def break_link(method: PeerMethod) -> None:
        if method is PeerMethod.COMMIT_OFFSETS:
            raise PeerRefused("the link to the other node closed")

    both.behind = break_link
    assert await both.commit(4) == [ErrorCode.NOT_COORDINATOR]
    assert await refusal_of(both.known) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await both.know()
    assert both.known() == [4, None, None]


async def test_offsets_that_are_not_known_any_more_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_copies, "_COPIES_LOOK_S", 0.0)
    monkeypatch.setattr(partition_copies, "_QUIET_S", 1000.0)
    both = await TwoNodes().start()
    both.tell()
    running = asyncio.ensure_future(both.copies.run())

    async def know() -> None:
        async with asyncio.timeout(20):
            while not both.offsets.are_known:  # noqa: ASYNC110 (nobody sets an event)
                await asyncio.sleep(0)
        for _ in range(TURNS):
            await asyncio.sleep(0)

    await know()
    await both.other.restart()
    both.tell()
    assert not both.offsets.are_known
    await know()
    assert await both.commit(4) == [None]
    await both.other.restart()
    assert await both.commit(5) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    both.tell()
    await know()
    assert await both.commit(5) == [None]
    running.cancel()


async def test_a_commit_in_another_generation_of_the_tablet_is_refused() -> None:
    both = await TwoNodes().start()
    await both.know()
    await both.other.restart()
    assert await both.commit(4) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert both.stored() == [None] * 3
    await both.know()
    assert await both.commit(4) == [None]


async def test_offsets_of_a_cell_that_has_moved_to_another_node_are_copied_from_there() -> None:
    both = await TwoNodes().start()
    topic = both.other.topics.get("t")
    assert topic is not None
    await both.other.topics.offsets.commit("g", {("t", 0): ConsumerOffset(5)})
    moved = GroupOffsets(lambda _, index: topic.partitions[index], takes_copies=True)
    moved.learn("t", topic.partitions)
    for server in topic.partitions:
        server.stop()
    assert moved.are_known
    assert await refusal_of(lambda: moved.at("g", ("t", 0))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert moved.awaited == ("t",)


async def test_a_commit_waits_for_offsets_that_are_copied_unless_the_node_stops() -> None:
    both = await TwoNodes().start()
    waiting = asyncio.ensure_future(both.commit_in_order(4))
    await asyncio.sleep(0)
    assert not waiting.done()
    await both.know()
    assert await waiting == [None]
    both.elsewhere.clear()
    both.copies.follow()
    both.offsets.held.close()
    assert await both.commit_in_order(5) == [ErrorCode.NOT_COORDINATOR]


async def test_a_coordinator_of_the_past_changes_nothing() -> None:
    past, later = await TwoNodes().start(), 8
    await past.know()
    question = OffsetsAsked((later,) * COORDINATORS, (), (0, -1, ""))
    await past.served.answer(PeerMethod.COPY_OFFSETS, question.encode())
    assert await past.commit(4) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert past.stored() == [None] * 3
    with pytest.raises(PeerRefused, match="of the past"):
        await past.served.answer(PeerMethod.COPY_OFFSETS, question._replace(coordinators=(7,) * COORDINATORS).encode())


async def test_a_marker_ends_a_transaction_at_another_node_unless_its_coordinator_is_of_the_past() -> None:
    both = await TwoNodes().start()
    server = both.other.partition(index=0)
    await server.write(*transactional(b"a", producer=(5, 0, 0)))
    await both.know()
    (known, *_) = both.offsets.ways.values()
    assert await known.way.end_transaction(known.partition, EndMarker(5, 0, 3, is_commit=True)) == 1
    assert server.state.stable_offset == 2
    refused = known.way.end_transaction(known.partition, EndMarker(5, 0, 2, is_commit=True))
    assert await refusal_of(lambda: refused) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize(
    "call",
    [
        OffsetsAsked((1, 2), ((b"i" * 16, TabletId(5)),), (5, 1, "g")),
        OffsetsTold({TabletId(5): 2}, [], is_whole=True),
        OffsetsCommitted((3, 9), "g\udc80é", [(PartitionAway(b"i" * 16, TabletId(5), 2, 0), ConsumerOffset(4))]),
        TransactionEnded(PartitionAway(b"i" * 16, TabletId(5), 2, 0), EndMarker(1, 2, 3, is_commit=False)),
    ],
)
def test_calls_are_read_as_they_were_written_and_others_refused(call: Any) -> None:
    assert repr(type(call).decode(call.encode())) == repr(call)
    many: list[Any] = [[["", 1]] * 2000] * 3
    wrongs: list[Any] = [None, 5, [], [[]], [None] * 3, [[["zz", 1, 1, 1], None]] * 3, ["g"] * 3, many]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"expected|allowed"):
            type(call).decode(wrong)
