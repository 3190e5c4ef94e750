"""Following a topic: its records as they come, over all partitions, for as long as the client reads."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.broker.web.resources.contents import read_text
from pqbroker.broker.web.resources.decoded_records import ShownRecords
from pqbroker.broker.web.resources.follow_terms import GROWTH_LOOK_S, HEARTBEAT_S, event_id, read_event_id
from pqbroker.broker.web.resources.isolation import isolation_of
from pqbroker.broker.web.resources.joined_following import JoinedTail
from pqbroker.broker.web.resources.read_positions import first_position, offset_in
from pqbroker.broker.web.resources.record_search import Search, Sought
from pqbroker.broker.web.routing.problems import ENDING, of_error
from pqbroker.broker.web.routing.routes import Call, Route, Stream
from pqbroker.broker.web.routing.stream_forms import PROBLEM, choose_form
from pqbroker.pq.reading.query import visible_end
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError

_PASSING = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR))
"""While the cell is opened again, or a tablet restarts."""


async def follow(call: Call, route: Route) -> Stream:
    """A stream of records; `route`: asks another node for one. Problem, KafkaError for what cannot be followed."""
    parts = call.node.leaders.by_number(call.topic(AclOperation.READ, ()), followed(call))
    if len(parts) <= 1 or call.node.others() is None:
        return await _follow_here(call)
    form = choose_form(call.headers.get("Accept", ""))
    joined = JoinedTail(call, route, _follow_here, form)
    await joined.begin(parts)
    return Stream(form.content_type, joined.pieces())


async def _follow_here(call: Call) -> Stream:
    """A stream of the records of this node's partitions."""
    form = choose_form(call.headers.get("Accept", ""))
    tail = _Tail(call, form.write)
    await tail.begin()
    return Stream(form.content_type, tail.pieces(form.heartbeat))


def followed(call: Call) -> Sequence[int] | None:
    """Return the partitions that a request follows; None: all. Several are named only by the first node of several."""
    named: Sequence[int] | None = call.query.get("partitions")
    return (call.query["partition"],) if "partition" in call.query else named


class _Tail:
    """One client's reading: where it stands in each partition, and which of them have moved."""

    def __init__(self, call: Call, write: Callable[..., bytes]) -> None:
        key = call.query.get("key")
        self._call = call
        self._write = write
        self._isolation = isolation_of(call)
        self._key = None if key is None else read_text(key, "key")
        self._left: float = call.query.get("limit", math.inf)
        self._next: dict[int, int] = {}
        self._watched: dict[int, PartitionServer] = {}
        self._forgets: list[Callable[[], None]] = []
        self._moved: dict[int, None] = {}
        """Partitions that may have records to read, those that were read longest ago first."""
        self._woken = asyncio.Event()

    async def begin(self) -> None:
        """Find where to begin in each partition."""
        call, position = self._call, first_position(self._call)
        resumed = read_event_id(call.headers.get("Last-Event-ID") or call.query.get("offsets", ""))
        for index, partition in self._partitions().items():
            await call.node.turns.breathe()
            partition.check_readable()
            start, end = partition.start_offset, visible_end(partition.state, self._isolation)
            if index in resumed:
                self._next[index] = min(max(resumed[index], start), end)
            else:
                self._next[index] = await offset_in(partition, position, self._isolation, is_clamped=True)

    async def pieces(self, heartbeat: bytes) -> AsyncGenerator[bytes, None]:
        """Yield what to send, piece by piece; a refusal is the last of them."""
        quiet_s = 0.0
        try:
            if "partitions" in self._call.query:  # the first node needs to know where each one begins
                yield self._write((), "", event_id(self._next)) or heartbeat
            while self._left > 0:
                if piece := await self._piece():
                    quiet_s = 0.0
                    yield piece
                elif not await self._wait():
                    quiet_s += GROWTH_LOOK_S
                if quiet_s >= HEARTBEAT_S:
                    quiet_s = 0.0
                    yield heartbeat
        except ENDING as error:
            yield self._write([of_error(error).document()], PROBLEM, "")
        finally:
            self._unwatch()

    async def _piece(self) -> bytes:
        """The next records; empty where there are none yet."""
        try:
            await self._watch()
            while self._moved:
                index = next(iter(self._moved))
                del self._moved[index]
                if shown := await self._read(index):
                    return await asyncio.to_thread(self._write, shown, "", event_id(self._next))
        except KafkaError as error:
            if error.code not in _PASSING:
                raise
            self._unwatch()
        return b""

    async def _wait(self) -> bool:
        """Wait for a partition to move. Return True if one moved within GROWTH_LOOK_S."""
        if not self._moved:
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(GROWTH_LOOK_S):
                    await self._woken.wait()
        return bool(self._moved)

    async def _read(self, index: int) -> list[Any]:
        call, partition = self._call, self._watched[index]
        partition.check_readable()
        settings = call.node.settings
        records = ShownRecords(call, call.topic(AclOperation.READ, (index,)), index)
        sought = Sought(
            records.show,
            self._key,
            int(min(self._left, settings.http_items_max)),
            settings.http_unsent_bytes_max,
            settings.http_look_bytes_max,
            self._isolation,
        )
        search = Search(sought, max(self._next[index], partition.start_offset))
        await search.look_through(partition, call.looks)
        self._next[index] = search.next_offset
        if search.is_behind(partition):
            self._moved[index] = None
        self._left -= len(search.shown)
        await records.decode(search.shown)
        return search.shown

    def _partitions(self) -> dict[int, PartitionServer]:
        """Return the partitions to follow, as they are served now."""
        named = followed(self._call)
        topic = self._call.topic(AclOperation.READ, named)
        return (
            dict(enumerate(topic.partitions)) if named is None else {one: find_partition(topic, one) for one in named}
        )

    async def _watch(self) -> None:
        """Be woken by the partitions as they are served now; those that are new are read from their start."""
        partitions = self._partitions()
        if partitions == self._watched:
            return
        self._unwatch()
        self._watched = partitions
        for index, partition in partitions.items():
            self._next.setdefault(index, partition.start_offset)
            self._moved[index] = None
            self._forgets.append(partition.watchers.add(partial(self._wake, index)))
            await self._call.node.turns.breathe()

    def _unwatch(self) -> None:
        for forget in self._forgets:
            forget()
        self._forgets.clear()
        self._watched = {}
        self._moved.clear()

    def _wake(self, index: int) -> None:
        self._moved[index] = None
        self._woken.set()
