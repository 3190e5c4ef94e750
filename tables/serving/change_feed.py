"""The change feed of a sorted tablet: records of a commit's changes, in a partition of a topic, by the commit's own
request.

    made       hold: rows before are read, batches encoded, the partition's writer waits    holding
    holding    commands, told                                                               gone: applied, or taken back
    holding    the partition is held, lost or moved; leave                                  gone: the plan is taken back

The tablet's commit holds all the time, so rows before stay what they were. Who writes prepared rows, which are
committed, passes the limits of the topic and a full disk; all others are refused for them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol

from pqbroker.pq.log.batch_admission import why_closed
from pqbroker.pq.log.blob_cycles import plan_decided
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.log.row_facts import RowFacts
from pqbroker.pq.log.write_cycle import Cycle, PlannedBatch
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import read_header
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv.joint_request import TabletCommands
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome, Told
from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.change_records import (
    ChangeTooLarge,
    CommittedRows,
    Values,
    encode_changes,
    with_before,
)

if TYPE_CHECKING:
    from pqbroker.tables.serving.tablet import SortedTablet

TRY_S: Final = 0.005
"""Seconds between looks for a partition that is not served at the moment."""
KEYS_OF_TURN: Final = 100
"""Keys whose rows are read before the loop's other work has its turn."""
ENCODED_IN_LOOP: Final = 100
"""More changes are encoded in a thread."""
BARRED_CURE: Final = (
    "Give that principal the rights again and `pqbroker table remount TABLE`, or set `changes` again, which gives the"
    " feed your rights, and remount."
)
_CODE = "CHANGE_FEED_CLOSED"


class FeedTopics(Protocol):
    """The topics of the node."""

    def partition(self, topic: str, index: int) -> PartitionServer | None:
        """Return a partition as it runs now; None: there is none."""

    def mark_feeds(self, feeders: Mapping[str, str]) -> None:
        """Take writes to these topics, whose names come with the paths of their tables, from the tables alone."""


class TabletIsHeld(CommitRefused):
    """The tablet is held while its commit waits for the feed: the commit begins again later."""


class ChangeFeed:
    """The feed of one tablet, as its attributes name it now."""

    __slots__ = ("_tablet", "topic")

    def __init__(self, tablet: "SortedTablet", topic: str) -> None:
        self._tablet = tablet
        self.topic = topic

    @property
    def name(self) -> str:
        """Return what texts for people call the partition."""
        tablet = self._tablet
        return f"partition {tablet.config.number} of {self.topic!r}, the change feed of {tablet.name}"

    def commit(self, commits: Sequence[CommittedRows], *, is_decided: bool = False) -> "FeedCommit":
        """Return the changes of commits that one request writes. `is_decided`: the rows were prepared, and are
        committed."""
        return FeedCommit(self._tablet, self, commits, is_decided=is_decided)

    def partition(self) -> PartitionServer | None:
        """Return the partition as it runs now; None: it does not, or in another cell than the tablet."""
        found = self._tablet.share.topics
        server = None if found is None else found.partition(self.topic, self._tablet.config.number)
        if server is None or not server.is_loaded or not server.storage.shares_cell(self._tablet.kv.storage):
            return None
        return server

    def refusal(self) -> TableError | None:
        """Return why a commit would be refused now; None: it would not."""
        server = self.partition()
        return self.absent() if server is None else self.closed(server)

    def closed(self, server: PartitionServer) -> TableError | None:
        """Return why the partition takes no changes now."""
        barred = self._tablet.share.barred_feeds
        if barred and self.topic in barred:
            return TableError(_CODE, f"{self.name}, takes no changes: {barred[self.topic]}", BARRED_CURE)
        if server.writer.is_disk_full:
            return self.refused(server.writer.disk_full)
        closed = why_closed(server.state, is_feed=True)
        return None if closed is None else self.refused(closed.message)

    def absent(self) -> TableError:
        """Return the refusal for want of the partition."""
        found = self._tablet.share.topics
        server = None if found is None else found.partition(self.topic, self._tablet.config.number)
        if server is None:
            return self.refused("there is no such partition; remount the table to have the topic created")
        if not server.is_loaded:
            return self.refused("it is not served at the moment")
        return self.refused("it lives in another cell than the tablet; `pqbroker table remount TABLE` has both in one")

    def refused(self, cause: str) -> TableError:
        """Return the refusal of a write of the table."""
        cure = "Try again when the feed takes records; or set `changes` to null and remount the table."
        return TableError(_CODE, f"{self.name}, takes no changes: {cause}", cure)

    def too_large(self, cause: ChangeTooLarge) -> TableError:
        """Return the refusal of a row whose record is too large."""
        cure = f"Raise max.message.bytes of {self.topic!r}, or write smaller rows."
        return TableError("CHANGE_TOO_LARGE", f"{cause}, more than {self.name}, takes (max.message.bytes)", cure)


class FeedCommit:
    """Changes of one commit: their batches, and a place in the partition's queue."""

    __slots__ = ("_batches", "_commits", "_feed", "_is_decided", "_place", "_tablet")

    def __init__(
        self, tablet: "SortedTablet", feed: ChangeFeed, commits: Sequence[CommittedRows], *, is_decided: bool
    ) -> None:
        self._tablet = tablet
        self._feed = feed
        self._commits = commits
        self._is_decided = is_decided
        self._batches: list[PlannedBatch] = []
        self._place: _FeedPlace | None = None

    async def hold(self) -> None:
        """Return when the partition's cycle is ready. TableError CHANGE_FEED_CLOSED, CHANGE_TOO_LARGE, CHUNK_DAMAGED;
        CommitRefused, ShardLost; TabletIsHeld."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._tablet.lock_wait_s
        while not await self._try():
            if self._tablet.writes.is_held:
                raise TabletIsHeld(f"{self._tablet.name} is moved or restarted")
            if loop.time() >= until_s:
                raise self._feed.absent()
            await asyncio.sleep(TRY_S)  # a restart, or a move of both, takes milliseconds

    async def _try(self) -> bool:
        """Return True once the partition's cycle is ready; False: it is not served at the moment."""
        server = self._feed.partition()
        if server is None:
            return False
        if not self._batches:
            await self._encode(server.state.settings.topic.max_message_bytes)
        stamps = [commit.timestamp for commit in self._commits for _ in commit.rows]
        self._place = place = _FeedPlace(self._feed, server, self._batches, stamps, self._now_ms)
        refusal = await place.enter(is_decided=self._is_decided)
        if isinstance(refusal, KafkaError) and refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return False
        if isinstance(refusal, KafkaError):
            raise self._feed.refused(refusal.message)
        if refusal is not None:
            raise refusal
        return True

    async def _encode(self, bytes_max: int) -> None:
        """Make the batches of the changes."""
        schema = self._tablet.config.schema
        stored = await self._stored()
        now_ms = self._now_ms()

        def encode() -> list[bytearray]:
            found = with_before(schema.form, self._commits, stored)
            return encode_changes(schema, found, now_ms, bytes_max, is_refused=not self._is_decided)

        try:
            made = encode() if len(stored) <= ENCODED_IN_LOOP else await asyncio.to_thread(encode)
        except ChangeTooLarge as excess:
            raise self._feed.too_large(excess) from None
        self._batches = [(memoryview(batch), read_header(batch)) for batch in made]

    async def _stored(self) -> dict[bytes, Values | None]:
        """Return what is stored of each key, before the commits."""
        lookup = self._tablet.lookup(TIMESTAMP_MAX)
        keys = dict.fromkeys(row.key for commit in self._commits for row in commit.rows)
        stored: dict[bytes, Values | None] = {}
        for number, key in enumerate(keys, 1):
            stored[key] = await lookup.find(key)
            if number % KEYS_OF_TURN == 0:
                await asyncio.sleep(0)
        return stored

    def _now_ms(self) -> int:
        return self._tablet.share.time.clock()

    def refusal(self) -> BaseException | None:
        """Return why the changes cannot be written though the cycle was ready; None: they can."""
        place = self._place
        if place is None or not place.holds or self._feed.partition() is not place.server:
            return CommitRefused(f"{self._feed.name}, was lost, or is moved or restarted")
        return None

    def commands(self) -> TabletCommands:
        """Return what writes the changes: too late to leave. `refusal` was asked in the same turn of the loop."""
        assert self._place is not None, "the cycle holds"
        return self._place.send()

    def told(self, error: BaseException | None) -> None:
        """The request has ended; nothing happens where the changes were no part of it."""
        if self._place is None or not self._place.tell(error) or error is not None:
            return
        counters = self._tablet.share.changes
        counters.records += sum([header.record_count for _, header in self._batches])
        counters.bytes_written += sum([len(batch) for batch, _ in self._batches])

    def leave(self) -> None:
        """Give the place in the partition's queue up, unless the request was sent."""
        if self._place is not None:
            self._place.leave()


class _FeedPlace:
    """One place in a partition's queue; the `JointCommit` of its cycle."""

    __slots__ = (
        "_batches", "_clock", "_cycle", "_feed", "_is_gone", "_is_sent", "_kv", "_stamps", "_told", "_turn", "server",
    )  # fmt: skip

    def __init__(
        self, feed: ChangeFeed, server: PartitionServer, batches: Sequence[PlannedBatch], stamps: Sequence[int],
        clock: Callable[[], int],
    ) -> None:
        """`stamps`: timestamp of each record of the batches."""
        self._feed = feed
        self.server = server
        self._batches = batches
        self._stamps = stamps
        self._clock = clock
        self._turn: Outcome[None] = Outcome()
        self._kv: KeyValueTablet | None = None
        self._cycle: Cycle | None = None
        self._told: Told | None = None
        """Called with the outcome of the request; None before the cycle holds, and when it holds no more."""
        self._is_gone = False
        """True once it was left, or the partition is lost or held."""
        self._is_sent = False

    async def enter(self, *, is_decided: bool) -> BaseException | None:
        """Return when the cycle is ready, or with the reason why it never will be."""
        size = sum([len(batch) for batch, _ in self._batches])
        plan = partial(self._plan, is_decided=is_decided)
        writer = self.server.writer
        job = writer.perform(plan, decided_bytes=size) if is_decided else writer.perform(plan, size)
        job.add_done_callback(self._ended)
        await self._turn.wait()
        return self._turn.exception()

    @property
    def holds(self) -> bool:
        return self._told is not None

    def send(self) -> TabletCommands:
        """Return what writes the batches; too late to leave."""
        assert self._kv is not None, "the cycle holds"
        assert self._cycle is not None, "the cycle holds"
        self._is_sent = True
        return self._kv, self._cycle.as_commands()

    def tell(self, error: BaseException | None) -> bool:
        """Tell the writer what became of its cycle; False: it was not sent."""
        told, self._told, self._cycle = self._told, None, None
        if told is None:
            return False
        if isinstance(error, ShardLost) and self._kv is not None and self._kv.lost is None:
            error = CommitRefused(str(error))  # another tablet's instance is over, the partition's continues
        told(error)
        return True

    def leave(self) -> None:
        self._is_gone = True
        if not self._is_sent:
            self._take_back("the commit was given up")

    def commit(self, kv: KeyValueTablet, cycle: Cycle, told: Told) -> None:
        """Hold, as the `JointCommit` of the cycle."""
        self._kv, self._cycle, self._told = kv, cycle, told
        if self._is_gone:
            self._take_back("the commit was given up")
        else:
            self._tell_turn(None)

    def give_up(self, why: KafkaError) -> None:
        """Give up as `JointCommit` does; too late when the request is on its way."""
        if not self._is_sent:
            self._is_gone = True
            self._take_back(str(why))
            self._tell_turn(why)

    def _plan(self, *, is_decided: bool) -> Cycle:
        state, now_ms = self.server.state, self._clock()
        closed = None if is_decided else self._feed.closed(self.server)
        if closed is not None:
            self._tell_turn(closed)
        if closed is not None or self._is_gone:
            return state.no_change(now_ms)
        facts = _facts(self._batches, self._stamps) if state.settings.keeps_facts else ()
        cycle = plan_decided(state, self._batches, now_ms, facts)
        cycle.joint = self
        return cycle

    def _ended(self, job: Outcome[None]) -> None:
        error = job.exception()
        if error is not None:
            self._tell_turn(error)

    def _tell_turn(self, error: BaseException | None) -> None:
        if not self._turn.done():
            self._turn.settle(error)

    def _take_back(self, why: str) -> None:
        """Have the writer take the plan back, if it waits for this commit."""
        told, self._told, self._cycle = self._told, None, None
        if told is not None:
            asyncio.get_running_loop().call_soon(told, CommitRefused(why))


def _facts(batches: Sequence[PlannedBatch], stamps: Sequence[int]) -> Sequence[RowFacts]:
    """Return the facts of the records of batches, each with the timestamp of its own commit."""
    found: list[RowFacts] = []
    begin = 0
    for data, header in batches:
        facts, first, weight = RowFacts(0), 0, max(len(data) // header.record_count, 1)
        for timestamp, some in groupby(stamps[begin : begin + header.record_count]):
            count = len(list(some))
            facts.append(first, timestamp, [weight] * count)
            first += count
        found.append(facts)
        begin += header.record_count
    return found
