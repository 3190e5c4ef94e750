"""Members of a group, whichever protocol they speak, read and commit. A book of what all of them saw is broken by a
partition with two owners in one epoch, or by a record that is read again for no reason."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pqbroker.protocol.records import batches
from tests.broker.wire import Client

FATES: Final = ("leave", "leave", "die", "freeze")
"""Fates of members, one of which is drawn at random."""
FEWEST_EPOCHS: Final = 3
FEW: Final = 100
"""Records."""
GROUP: Final = "churn"
TOPIC: Final = "churn"
_OVERTAKEN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS,
    }
)  # fmt: skip
"""Answers to a commit of a member that is no longer what it says; anything else is a failure."""


@dataclass(slots=True, eq=False)
class Life:
    """One incarnation of a member, as far as what it has read concerns."""

    may_leave_records: bool = False
    """True if it was killed, froze or was fenced: what it had read and not committed is read again."""


@dataclass(slots=True)
class Book:
    """Observations of all members. Owners are static members' instances, and else member ids."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """The owner by partition and epoch."""
    written: Counter[int] = field(default_factory=Counter)
    committed: Counter[int] = field(default_factory=Counter)
    """Offset up to which a commit was acknowledged."""
    readers: dict[tuple[int, int], Life] = field(default_factory=dict)
    """The last reader by partition and offset."""
    read_again: list[tuple[int, int, Life]] = field(default_factory=list)
    """Partition, offset and first reader of what was read twice. Whether it may be is known when the reader has learned
    that it was fenced."""
    events: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    """How often the group became one of each type."""

    def is_worth(self, *, moves: bool) -> bool:
        """Return True if enough has happened for a run to mean something; `moves`: the group was to move both ways."""
        if len(self.events) < len(set(FATES)) or (moves and len(self.moves) < 2):
            return False
        return len({epoch for _, epoch in self.owners}) >= FEWEST_EPOCHS and self.written.total() > FEW

    def own(self, epoch: int, owner: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            earlier = self.owners.setdefault((partition, epoch), owner)
            assert earlier == owner, f"epoch {epoch}: partition {partition} is {earlier}'s and {owner}'s"

    def read(self, life: Life, partition: int, offset: int) -> None:
        assert offset >= self.committed[partition], f"{partition}-{offset} is committed and read again"
        earlier = self.readers.get((partition, offset))
        if earlier is not None:
            self.read_again.append((partition, offset, earlier))
        self.readers[partition, offset] = life

    def open_questions(self) -> list[str]:
        """Return what is not read to its end, and what was read twice though nobody knows why."""
        unread = [f"partition {each} is not read" for each, end in self.written.items() if self.committed[each] < end]
        twice = [
            f"{partition}-{offset} was read twice, though its reader left in peace"
            for partition, offset, life in self.read_again
            if not life.may_leave_records
        ]
        return unread + twice


class Reader:
    """The part of a member that reads its partitions and commits; the member says who it is and in which epoch."""

    def __init__(self, book: Book, topic_id: bytes, instance: str | None) -> None:
        self.instance = instance
        self.book = book
        self._topic_id = topic_id
        self.begin_life("", 0)

    def begin_life(self, member_id: str, epoch: int) -> None:
        """Begin as another member, which has nothing."""
        self.life = Life()
        self.member_id = member_id
        self.epoch = epoch
        self.positions: dict[int, int] = {}

    @property
    def owner(self) -> str:
        """The name by which the book knows it."""
        return self.instance or self.member_id

    def own(self) -> None:
        """Note what the member has in its epoch."""
        self.book.own(self.epoch, self.owner, self.positions)

    async def begin(self, client: Client, partitions: Collection[int], *, is_fenced: bool) -> bool:
        """Read partitions from their committed offsets on. With `is_fenced` the request names the member and its epoch.
        Return False where the group no longer knows them."""
        if not partitions:
            return True
        topics = [OffsetFetchRequestTopic(topic_id=self._topic_id, partition_indexes=sorted(partitions))]
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        if is_fenced:
            group.member_id, group.member_epoch = self.member_id, self.epoch
        (found,) = (await client.ask(OffsetFetchRequest(groups=[group]), 10)).groups
        if found.error_code:
            assert found.error_code in (_OVERTAKEN if is_fenced else ()), found.error_code
            return False
        for each in found.topics[0].partitions:
            self.positions[each.partition_index] = max(0, each.committed_offset)
        return True

    async def read(self, client: Client) -> None:
        """Read what there is of its partitions."""
        if not self.positions:
            return
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in self.positions.items()
        ]
        topic = FetchTopic(topic_id=self._topic_id, partitions=wanted)
        fetched = await client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 22, topics=[topic]), 13)
        for data in fetched.responses[0].partitions if fetched.responses else ():
            assert data.error_code == ErrorCode.NONE, data.error_code
            self._take(data.partition_index, bytes(data.records or b""))

    def _take(self, partition: int, records: bytes) -> None:
        for _, header in batches(memoryview(records)):
            end = header.base_offset + header.last_offset_delta + 1
            for offset in range(max(header.base_offset, self.positions[partition]), end):
                self.book.read(self.life, partition, offset)
                self.positions[partition] = offset + 1

    async def commit(self, client: Client, positions: Mapping[int, int]) -> bool:
        """Commit; False when the member is no longer what it says."""
        if not positions:
            return True
        asked = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=position)
            for index, position in positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=self.epoch, member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(topic_id=self._topic_id, partitions=asked)],
        )  # fmt: skip
        codes = {each.error_code for each in (await client.ask(request, 10)).topics[0].partitions}
        assert len(codes) == 1, codes
        code = ErrorCode(codes.pop())
        assert code in {ErrorCode.NONE, *_OVERTAKEN}, code
        if code == ErrorCode.NONE:
            for partition, position in positions.items():
                self.book.committed[partition] = max(self.book.committed[partition], position)
        return code == ErrorCode.NONE
