"""Calls of the first node to one that runs partitions, as heads of the peer link: both ends read them here. No I/O."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pqbroker.pq.log.consumers import ConsumerOffset, decode, encode
from pqbroker.pq.serving.elsewhere import PartitionAway
from pqbroker.pq.serving.offsets import COMMITTED_AT_ONCE_MAX
from pqbroker.protocol.control_records import EndMarker
from pqbroker.storage.ids import TabletId

COPIED_TABLETS_MAX: Final = 100
"""Tablets whose offsets are asked for at once."""
COPIED_OFFSETS_MAX: Final = 500
"""Offsets of one answer."""

AskedTablet = tuple[bytes, TabletId]
"""The id of a topic, and one of its tablets."""
CopyPlace = tuple[int, int, str]
"""Tablet, partition index and group of an offset. The next answer begins behind one."""
FIRST_PLACE: Final[CopyPlace] = (0, -1, "")


class CopiedOffset(NamedTuple):
    """One offset of an answer. `end`: that of its partition."""

    tablet: TabletId
    partition: int
    group_id: str
    state: ConsumerOffset
    end: int


class OffsetsAsked(NamedTuple):
    """A question for offsets. `coordinators`: the generations of the coordinator tablets, by number, which commits of
    earlier ones must not follow."""

    coordinators: tuple[int, ...]
    tablets: tuple[AskedTablet, ...]
    after: CopyPlace

    def encode(self) -> Any:
        return [self.coordinators, [[topic.hex(), tablet] for topic, tablet in self.tablets], self.after]

    @classmethod
    def decode(cls, head: Any) -> "OffsetsAsked":
        """ValueError for a head that is none."""
        try:
            coordinators, tablets, (tablet, index, group_id) = head
            asked = tuple((bytes.fromhex(topic), TabletId(int(one))) for topic, one in tablets)
            place = (int(tablet), int(index), str(group_id))
            found = cls(tuple(map(int, coordinators)), asked, place)
        except (TypeError, ValueError) as bad:
            raise ValueError(f"a question for offsets was expected: {bad}") from None
        if len(found.tablets) > COPIED_TABLETS_MAX:
            raise ValueError(f"offsets of {len(found.tablets)} tablets are asked for; {COPIED_TABLETS_MAX} are allowed")
        return found


class OffsetsTold(NamedTuple):
    """The answer. `generations`: those of the tablets that run; `is_whole`: no offset follows."""

    generations: dict[TabletId, int]
    offsets: list[CopiedOffset]
    is_whole: bool

    def encode(self) -> Any:
        offsets = [[*one[:3], encode(one.state).hex(), one.end] for one in self.offsets]
        return [list(self.generations.items()), offsets, self.is_whole]

    @classmethod
    def decode(cls, head: Any) -> "OffsetsTold":
        """ValueError for a head that is none."""
        try:
            generations, offsets, is_whole = head
            return cls(
                {TabletId(int(tablet)): int(generation) for tablet, generation in generations},
                [
                    CopiedOffset(
                        TabletId(int(tablet)), int(index), str(group_id), decode(bytes.fromhex(state)), int(end)
                    )
                    for tablet, index, group_id, state, end in offsets
                ],
                bool(is_whole),
            )
        except (TypeError, ValueError) as bad:
            raise ValueError(f"offsets were expected: {bad}") from None


class OffsetsCommitted(NamedTuple):
    """Offsets of a group to store, or to delete (None). `coordinator`: number and generation of the group's
    coordinator tablet."""

    coordinator: tuple[int, int]
    group_id: str
    offsets: Sequence[tuple[PartitionAway, ConsumerOffset | None]]

    def encode(self) -> Any:
        offsets = [[_place(one), None if state is None else encode(state).hex()] for one, state in self.offsets]
        return [self.coordinator, self.group_id, offsets]

    @classmethod
    def decode(cls, head: Any) -> "OffsetsCommitted":
        """ValueError for a head that is none."""
        try:
            (number, generation), group_id, offsets = head
            read = [(_read(place), None if row is None else decode(bytes.fromhex(row))) for place, row in offsets]
            found = cls((int(number), int(generation)), str(group_id), read)
        except (TypeError, ValueError) as bad:
            raise ValueError(f"offsets to store were expected: {bad}") from None
        if len(found.offsets) > COMMITTED_AT_ONCE_MAX:
            raise ValueError(f"{len(found.offsets)} offsets are to be stored; {COMMITTED_AT_ONCE_MAX} are allowed")
        return found


class TransactionEnded(NamedTuple):
    """A Kafka transaction to end in a partition."""

    partition: PartitionAway
    marker: EndMarker

    def encode(self) -> Any:
        return [_place(self.partition), list(self.marker)]

    @classmethod
    def decode(cls, head: Any) -> "TransactionEnded":
        """ValueError for a head that is none."""
        try:
            place, (producer_id, epoch, coordinator_epoch, is_commit) = head
            marker = EndMarker(int(producer_id), int(epoch), int(coordinator_epoch), bool(is_commit))
            return cls(_read(place), marker)
        except (TypeError, ValueError) as bad:
            raise ValueError(f"a marker was expected: {bad}") from None


def _place(partition: PartitionAway) -> list[Any]:
    return [partition.topic_id.hex(), partition.tablet, partition.generation, partition.number]


def _read(place: Any) -> PartitionAway:
    topic_id, tablet, generation, index = place
    return PartitionAway(bytes.fromhex(topic_id), TabletId(int(tablet)), int(generation), int(index))
