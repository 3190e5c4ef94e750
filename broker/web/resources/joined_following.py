"""Following a topic over several nodes: each follows its own partitions, and the first one joins the events that they
send. An error of one of them ends the stream."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.resources.follow_terms import GROWTH_LOOK_S, HEARTBEAT_S, event_id, read_event_id
from pqbroker.broker.web.routing.joined_streams import JoinedStreams, Part, read_piece
from pqbroker.broker.web.routing.problems import ENDING, Problem, of_error
from pqbroker.broker.web.routing.routes import Call, Route, Stream
from pqbroker.broker.web.routing.stream_forms import EVENTS, PROBLEM, StreamForm
from pqbroker.protocol.errors import ErrorCode, KafkaError

_ACCEPT: Final = {"Accept": EVENTS.content_type}
_FILTERS: Final = ("key", "isolation", "decode", "limit")
"""Parameters that say nothing of where to begin."""


class _Events(NamedTuple):
    """A piece of a node's stream: records, where it stands behind them, and the error that ends it."""

    records: Sequence[Any]
    offsets: Mapping[int, int]
    error: Problem | None


class JoinedTail:
    """One client's reading at several nodes."""

    def __init__(
        self, call: Call, route: Route, follow_here: Callable[[Call], Awaitable[Stream]], form: StreamForm
    ) -> None:
        """`follow_here` follows partitions of this node."""
        self._call = call
        self._route = route
        self._follow_here = follow_here
        self._form = form
        self._left: float = call.query.get("limit", math.inf)
        self._next: dict[int, int] = {}
        self._followed: set[int] = set()
        self._streams = JoinedStreams()

    async def begin(self, parts: Mapping[int, Sequence[int]]) -> None:
        """Have each node follow these of its partitions; return when all have said where they begin. Problem,
        KafkaError."""
        try:
            opened = await self._open(parts, self._call.query, {**self._call.headers, **_ACCEPT})
            for _ in opened:
                taken = await self._streams.take()
                assert taken is not None, "there is no limit of time"
                await self._read(*taken)
        except BaseException:
            await self._streams.close()
            raise
        for part in opened:
            self._streams.ask(part)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield what to send, piece by piece; an error is the last of them."""
        loop = self._call.node.loop
        sent_s = looked_s = loop.time()
        try:
            while self._left > 0:
                records = await self._records()
                if loop.time() >= looked_s + GROWTH_LOOK_S:
                    await self._follow_growth()
                    looked_s = loop.time()
                if records or loop.time() >= sent_s + HEARTBEAT_S:
                    sent_s = loop.time()
                    yield await asyncio.to_thread(self._write, records)
        except ENDING as error:
            yield self._form.write([of_error(error).document()], PROBLEM, "")
        finally:
            await self._streams.close()

    def _write(self, records: Sequence[Any]) -> bytes:
        is_known = self._followed == self._next.keys()
        return self._form.write(records, "", event_id(self._next) if is_known else "") or self._form.heartbeat

    async def _open(
        self, parts: Mapping[int, Sequence[int]], query: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Sequence[Part]:
        calls = {
            node: replace(self._call, query={**query, "follow": True, "partitions": partitions}, headers=headers)
            for node, partitions in parts.items()
        }
        self._followed.update(*parts.values())
        return await self._streams.open(self._route, calls, self._follow_here)

    async def _records(self) -> Sequence[Any]:
        """Return the next records; none where none come within GROWTH_LOOK_S. Problem."""
        taken = await self._streams.take(GROWTH_LOOK_S)
        if taken is None:
            return ()
        events = await self._read(*taken)
        self._streams.ask(taken[0])
        if len(events.records) <= self._left:
            self._left -= len(events.records)
            return events.records
        records, self._left = events.records[: int(self._left)], 0
        self._next[records[-1]["partition"]] = records[-1]["offset"] + 1
        return records

    async def _read(self, part: Part, piece: bytes) -> _Events:
        """Return what is in a piece. Problem."""
        events = await read_piece(_read_events, part, piece)
        if events.error is not None:
            raise events.error
        self._next.update(events.offsets)
        return events

    async def _follow_growth(self) -> None:
        """Follow the partitions that are new, from their start. Problem, KafkaError."""
        topic = self._call.topic(AclOperation.READ, ())
        new = [index for index in range(topic.record.partitions) if index not in self._followed]
        if not new:
            return
        query = {name: self._call.query[name] for name in _FILTERS if name in self._call.query}
        try:
            await self._open(self._call.node.leaders.by_number(topic, new), query, _ACCEPT)
        except KafkaError as refusal:
            if refusal.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            self._followed.difference_update(new)  # their cells open: the next look has them


def _read_events(piece: bytes) -> _Events:
    """ValueError, LookupError, TypeError for what no stream of records sends."""
    records: list[Any] = []
    offsets: dict[int, int] = {}
    error = None
    for event in piece.decode(errors="surrogateescape").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.split("\n") if line not in ("", ":"))
        try:
            offsets |= read_event_id(fields.get("id", ""))
        except Problem as bad:
            raise ValueError(str(bad)) from bad
        if "data" in fields:
            document = json.loads(fields["data"])
            if fields.get("event") == PROBLEM:
                told = document["error"]
                error = Problem(503, str(told["code"]), str(told["message"]), str(told["cure"]))
            else:
                records.append(_checked(document))
    return _Events(records, offsets, error)


def _checked(record: Any) -> Any:
    if not isinstance(record["partition"], int) or not isinstance(record["offset"], int):
        raise ValueError("the place of a record was expected")
    return record
