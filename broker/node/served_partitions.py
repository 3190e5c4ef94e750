"""Partitions of this node, as the first one uses them over the peer link: offsets of groups are copied from here and
stored here, Kafka transactions end here.

What comes is begun in the order in which it came. Commits of a coordinator tablet's earlier generation are refused once
a later one has asked for offsets, so that nothing lands behind what a new coordinator has read; so is whatever names
another generation of a partition's tablet.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pqbroker.broker.node.admissions import Admissions
from pqbroker.broker.node.partition_calls import (
    COPIED_OFFSETS_MAX,
    CopiedOffset,
    OffsetsAsked,
    OffsetsCommitted,
    OffsetsTold,
    TransactionEnded,
)
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, encode_peer_call
from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.pq.serving.elsewhere import PartitionAway
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.tablet import PqTablet
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.coordinator_rows import PartitionId

CALLS = (PeerMethod.COPY_OFFSETS, PeerMethod.COMMIT_OFFSETS, PeerMethod.END_TRANSACTION)


class ServedPartitions:
    """The partitions of one node. `serving`: the opening that is current."""

    def __init__(self, serving: Callable[[], OpenCell], admissions: Admissions) -> None:
        self._serving = serving
        self._admissions = admissions
        self._coordinators: tuple[int, ...] = ()
        """Greatest generations of the coordinator tablets that are known, by number."""

    async def answer(self, method: PeerMethod, head: Any) -> bytes:
        """Answer a call of the first node. PeerRefused: nothing is stored."""
        try:
            if method is PeerMethod.COPY_OFFSETS:
                told: Any = (await self._copy(OffsetsAsked.decode(head))).encode()
            elif method is PeerMethod.COMMIT_OFFSETS:
                told = await self._commit(OffsetsCommitted.decode(head))
            else:
                told = await self._end(TransactionEnded.decode(head))
        except ValueError as bad:
            raise PeerRefused(str(bad)) from bad
        return encode_peer_call(method, told)

    @property
    def _topics(self) -> Topics:
        return self._serving().topics

    async def _copy(self, asked: OffsetsAsked) -> OffsetsTold:
        self._meet(asked.coordinators)
        await self._topics.offsets.all_settled()
        running = self._running(asked)
        generations = {tablet_id: tablet.kv.storage.generation for tablet_id, tablet in running.items()}
        offsets: list[CopiedOffset] = []
        for one in _offsets_behind(running, asked):
            if len(offsets) == COPIED_OFFSETS_MAX:
                return OffsetsTold(generations, offsets, is_whole=False)
            offsets.append(one)
        return OffsetsTold(generations, offsets, is_whole=True)

    async def _commit(self, asked: OffsetsCommitted) -> str:
        """Store offsets; return why they were refused, empty where they are durable."""
        number, generation = asked.coordinator
        if not 0 <= number < len(self._coordinators) or generation < self._coordinators[number]:
            return f"coordinator {number} has a later generation than {generation}"
        offsets = self._topics.offsets
        changes = offsets.begin(asked.group_id)
        try:
            for partition, state in asked.offsets:
                server = self._served(partition)
                changes.add((self._name(partition), server.index), state)
            refusals = [refusal for refusal in changes.outcomes.values() if refusal is not None]
            if refusals:
                raise refusals[0]
        except (KafkaError, CommitRefused) as refusal:
            changes.give_up()
            return str(refusal)
        for outcome in (await offsets.enqueue(changes)).values():
            if outcome is not None:
                raise PeerRefused(f"offsets of group {asked.group_id!r} may be stored or not: {outcome}")
        return ""

    async def _end(self, asked: TransactionEnded) -> Any:
        """End a transaction; return the marker's offset, or code and text of a refusal of Kafka's, or a text."""
        marker = asked.marker
        partition = PartitionId(asked.partition.topic_id, asked.partition.number)
        try:
            server = self._served(asked.partition)
            self._admissions.meet_marker(marker.producer_id, partition)
            return await server.end_transaction(
                marker.producer_id, marker.epoch, marker.coordinator_epoch, is_commit=marker.is_commit
            )
        except KafkaError as refusal:
            return [refusal.code, refusal.message]
        except CommitRefused as refused:
            return str(refused)
        except ShardLost as lost:
            raise PeerRefused(f"the marker may be stored or not: {lost}") from lost

    def _meet(self, coordinators: tuple[int, ...]) -> None:
        """Take later generations of coordinator tablets. ValueError for a question of earlier ones."""
        known = self._coordinators or (0,) * len(coordinators)
        if len(known) != len(coordinators) or any(map(int.__lt__, coordinators, known)):
            raise ValueError("a coordinator of the past asks for offsets")
        self._coordinators = coordinators

    def _running(self, asked: OffsetsAsked) -> Mapping[TabletId, PqTablet]:
        """Return the tablets that run and whose partitions are all readable, by id in order."""
        found = {}
        for topic_id, tablet_id in sorted(asked.tablets, key=lambda one: one[1]):
            topic = self._topics.by_id(topic_id)
            tablet = None if topic is None else topic.tablets.get(tablet_id)
            if tablet is not None and all(server.is_loaded for server in tablet.partitions.values()):
                found[tablet_id] = tablet
        return found

    def _served(self, partition: PartitionAway) -> PartitionServer:
        """Return a partition in the generation that a call names. CommitRefused for another one."""
        topic = self._topics.by_id(partition.topic_id)
        tablet = None if topic is None else topic.tablets.get(partition.tablet)
        server = None if tablet is None else tablet.partitions.get(partition.number)
        if server is None or server.is_lost or server.storage.generation != partition.generation:
            text = f"partition {partition.number} of tablet {partition.tablet} does not run here in generation"
            raise CommitRefused(f"{text} {partition.generation}")
        return server

    def _name(self, partition: PartitionAway) -> str:
        topic = self._topics.by_id(partition.topic_id)
        assert topic is not None, "the partition is served"
        return topic.record.name


def _offsets_behind(running: Mapping[TabletId, PqTablet], asked: OffsetsAsked) -> Iterator[CopiedOffset]:
    """Yield the offsets behind the place that a question names, in order."""
    servers = [
        (tablet_id, index, tablet.partitions[index])
        for tablet_id, tablet in running.items()
        for index in sorted(tablet.partitions)
        if (tablet_id, index) >= asked.after[:2]
    ]
    for tablet_id, index, server in servers:
        states = server.consumers.all()
        for group_id in sorted(states):
            if (tablet_id, index, group_id) > asked.after:
                yield CopiedOffset(tablet_id, index, group_id, states[group_id], server.end_offset)
