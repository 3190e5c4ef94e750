"""Offsets of groups in partitions that other nodes run, at the first node, which coordinates all groups.

    unknown  its node runs the tablet        asked for, page by page
    asked    the answers are whole           known: commits go over the link
    known    the node's link closes          unknown
    known    the tablet's generation changes unknown
    known    nobody knows a commit's outcome unknown

While offsets of a partition are unknown, whatever needs them is COORDINATOR_LOAD_IN_PROGRESS, never "no offset". A copy
is exact: this node alone changes the offsets, and what it asks for arrives in the order in which it asks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from pqbroker.broker.node.partition_calls import (
    COPIED_TABLETS_MAX,
    FIRST_PLACE,
    CopiedOffset,
    OffsetsAsked,
    OffsetsCommitted,
    OffsetsTold,
    TransactionEnded,
)
from pqbroker.broker.peers.link_rules import LinkBusy
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerLink, PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.broker.services.coordination.coordinators import coordinator_of
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.elsewhere import KnownElsewhere, PartitionAway
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.control_records import EndMarker
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.bundles.placement import Elsewhere
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.outcome import Outcome

_COPIES_LOOK_S: Final = 0.05
"""Seconds between looks for offsets that are not known."""
_QUIET_S: Final = 1.0
"""Seconds between looks while all are known."""
_TOPICS_AT_ONCE: Final = 100
"""Topics that are looked at before the loop's other work has its turn."""

log = logging.getLogger(__name__)


class _AwaitedTablet(NamedTuple):
    """A tablet whose offsets are not known."""

    topic: Topic
    tablet: TabletId


class _CopiedPartition(NamedTuple):
    """Offsets of one partition by group, and its end."""

    states: dict[str, ConsumerOffset]
    end: int = 0


class PartitionCopies:
    """Copies of one node. `elsewhere`: tablets that others run; `link_of`: the open link to the node with a cell."""

    def __init__(
        self, serving: Callable[[], OpenCell], elsewhere: Elsewhere, link_of: Callable[[CellId], PeerLink | None],
        timeout_s: float,
    ) -> None:
        self.serving = serving
        self._elsewhere = elsewhere
        self._link_of = link_of
        self.timeout_s = timeout_s
        self._ways: dict[CellId, CellWay] = {}
        self._asking: dict[CellId, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        """Set when some offsets may not be known any more."""

    async def run(self) -> None:
        """Drop what has become old and ask for what is not known, for as long as this runs."""
        try:
            while True:
                await asyncio.sleep(_COPIES_LOOK_S)
                await self._look()
                if self._topics.offsets.are_known:
                    await self._until_changed()
        finally:
            for task in self._asking.values():
                task.cancel()

    async def _until_changed(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_S):
                await self._changed.wait()
        self._changed.clear()

    def follow(self) -> None:
        """Drop copies of tablets that are not run any more as they were copied: nodes have named others."""
        self._changed.set()
        offsets = self._topics.offsets
        for server, known in list(offsets.ways.items()):
            way, partition = known.way, known.partition
            assert isinstance(way, CellWay), "every way is one of ours"
            is_as_copied = self._elsewhere.get(way.cell, {}).get(partition.tablet) == partition.generation
            if way.link is not self._link_of(way.cell) or not is_as_copied:
                topic = self._topics.by_id(partition.topic_id)
                if topic is not None:
                    offsets.drop_copy(topic.record.name, [server])
        for name in self._topics.names():
            topic, wanted = self._topics.get(name), dict[CellId, list[_AwaitedTablet]]()
            if topic is not None:
                self._add_wanted(topic, wanted)
            if wanted:
                offsets.expect(name)

    def drop(self, partitions: Sequence[PartitionAway]) -> None:
        """Drop copies of partitions in which something was changed with an outcome that nobody knows."""
        self._changed.set()
        for partition in partitions:
            topic = self._topics.by_id(partition.topic_id)
            if topic is not None and partition.number < len(topic.partitions):
                self._topics.offsets.drop_copy(topic.record.name, [topic.partitions[partition.number]])

    @property
    def generations(self) -> tuple[int, ...]:
        """Return the generations of the coordinator tablets, by number."""
        return tuple(coordinator.generation for coordinator in self.serving().coordinators.tablets)

    @property
    def _topics(self) -> Topics:
        return self.serving().topics

    async def _look(self) -> None:
        opened = self.serving()
        offsets = opened.topics.offsets
        if offsets.are_known or not opened.coordinators.is_serving:
            return
        wanted: dict[CellId, list[_AwaitedTablet]] = {}
        for number, name in enumerate(offsets.awaited, 1):
            topic = opened.topics.get(name)
            if topic is not None:
                self._add_wanted(topic, wanted)
            if number % _TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
        for cell, tablets in wanted.items():
            link = self._link_of(cell)
            if link is not None and cell not in self._asking:
                asking = asyncio.get_running_loop().create_task(self._ask(cell, link, tablets[:COPIED_TABLETS_MAX]))
                self._asking[cell] = asking
                asking.add_done_callback(partial(self._asked, cell))

    def _add_wanted(self, topic: Topic, wanted: dict[CellId, list[_AwaitedTablet]]) -> None:
        ways = self._topics.offsets.ways
        for tablet_id, cell, indexes in topic.record.spans():
            if tablet_id not in self._elsewhere.get(cell, {}) or indexes.stop > len(topic.partitions):
                continue
            servers = [topic.partitions[index] for index in indexes]
            if not all(server.is_loaded or server in ways for server in servers):
                wanted.setdefault(cell, []).append(_AwaitedTablet(topic, tablet_id))

    def _asked(self, cell: CellId, task: "asyncio.Task[None]") -> None:
        del self._asking[cell]
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, PeerRefused | LinkBusy | LinkBroken | ValueError):
            log.warning("offsets in cell %d are asked for again: %s", cell, error)
        elif error is not None:
            raise error

    async def _ask(self, cell: CellId, link: PeerLink, wanted: Sequence[_AwaitedTablet]) -> None:
        """Copy the offsets of some tablets. PeerRefused, LinkBusy, LinkBroken, ValueError."""
        opened = self.serving()
        tablets = tuple((one.topic.record.topic_id, one.tablet) for one in wanted)
        question = OffsetsAsked(self.generations, tablets, FIRST_PLACE)
        generations: dict[TabletId, int] | None = None
        found: dict[tuple[TabletId, int], _CopiedPartition] = {}
        while True:
            payload = encode_peer_call(PeerMethod.COPY_OFFSETS, question.encode())
            _, head, _ = decode_peer_call(await link.ask(payload, self.timeout_s))
            told = OffsetsTold.decode(head)
            if generations is not None and told.generations != generations:
                raise ValueError("tablets came to have other generations meanwhile")
            generations = told.generations
            _gather(found, told.offsets)
            if told.is_whole or not told.offsets:
                break
            question = question._replace(after=told.offsets[-1][:3])
        if opened is self.serving() and self._link_of(cell) is link:
            self._take(self._way(cell, link), wanted, generations, found)

    def _way(self, cell: CellId, link: PeerLink) -> "CellWay":
        way = self._ways.get(cell)
        if way is None or way.link is not link:
            way = self._ways[cell] = CellWay(self, cell, link)
        return way

    def _take(
        self, way: "CellWay", wanted: Sequence[_AwaitedTablet], generations: Mapping[TabletId, int],
        found: "Mapping[tuple[TabletId, int], _CopiedPartition]",
    ) -> None:
        """Have copies be known, of the tablets that have the generations that their node has named."""
        for topic, tablet_id in wanted:
            record, generation = topic.record, generations.get(tablet_id)
            tablet = topic.tablets.get(tablet_id)
            is_same = generation is not None and self._elsewhere.get(way.cell, {}).get(tablet_id) == generation
            if not is_same or tablet is None or self._topics.by_id(record.topic_id) is not topic:
                continue
            assert generation is not None, "it is the one that was named"
            copies = {}
            for index, server in tablet.partitions.items():
                away = PartitionAway(record.topic_id, tablet_id, generation, index)
                if not server.is_loaded:
                    states, end = found.get((tablet_id, index), _CopiedPartition({}))
                    copies[server] = KnownElsewhere(away, way, end), states
            self._topics.offsets.take_copy(record.name, topic.partitions, copies)


class CellWay:
    """The way to the partitions of one cell over a link, a `WayElsewhere`."""

    def __init__(self, copies: PartitionCopies, cell: CellId, link: PeerLink) -> None:
        self._copies = copies
        self.cell = cell
        self.link = link

    def commit_offsets(
        self, group_id: str, offsets: Sequence[tuple[PartitionAway, ConsumerOffset | None]]
    ) -> Outcome[None]:
        number = coordinator_of(group_id)
        asked = OffsetsCommitted((number, self._copies.generations[number]), group_id, offsets)
        return self._begin(self._commit(asked))

    def end_transaction(self, partition: PartitionAway, marker: EndMarker) -> Outcome[int]:
        return self._begin(self._end(TransactionEnded(partition, marker)))

    def _begin(self, asked: Awaitable[Any]) -> Outcome[Any]:
        """Ask, behind what was asked for before; the outcome of it."""
        outcome: Outcome[Any] = Outcome()
        task = asyncio.ensure_future(asked)

        def settle(task: "asyncio.Future[Any]") -> None:
            error = ShardLost("the node stops") if task.cancelled() else task.exception()
            if error is None:
                outcome.set_result(task.result())
            else:
                outcome.set_exception(error)

        task.add_done_callback(settle)
        return outcome

    async def _commit(self, asked: OffsetsCommitted) -> None:
        partitions = [partition for partition, _ in asked.offsets]
        try:
            told = await self._ask(PeerMethod.COMMIT_OFFSETS, asked.encode())
        except ShardLost:
            self._copies.drop(partitions)
            raise
        if told:
            self._copies.drop(partitions)
            raise CommitRefused(f"another node refused it: {told}")

    async def _end(self, asked: TransactionEnded) -> int:
        told = await self._ask(PeerMethod.END_TRANSACTION, asked.encode())
        if isinstance(told, int):
            return told
        if isinstance(told, list):
            raise _kafka_error(told)
        raise CommitRefused(f"another node refused it: {told}")

    async def _ask(self, method: PeerMethod, head: Any) -> Any:
        """Return the head of an answer. CommitRefused: nothing was done; ShardLost: nobody knows."""
        try:
            _, told, _ = decode_peer_call(await self.link.ask(encode_peer_call(method, head), self._copies.timeout_s))
        except LinkBusy as busy:
            raise CommitRefused(str(busy)) from busy
        except (PeerRefused, LinkBroken) as lost:
            raise ShardLost(str(lost)) from lost
        return told


def _kafka_error(told: Sequence[Any]) -> Exception:
    """Return the error of Kafka's that another node has answered with."""
    try:
        code, text = told
        return KafkaError(ErrorCode(code), str(text))
    except (TypeError, ValueError) as bad:
        return ShardLost(f"another node answered {told!r}: {bad}")


def _gather(found: dict[tuple[TabletId, int], _CopiedPartition], offsets: Sequence[CopiedOffset]) -> None:
    for one in offsets:
        found.setdefault((one.tablet, one.partition), _CopiedPartition({}, one.end)).states[one.group_id] = one.state
