"""Streams of several nodes that one answer joins: opened at each node, read piece by piece, closed together."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from pqbroker.broker.web.routing.forwarded_calls import IN_LOOP_BYTES, forward, unknown_answer
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Route, Stream, StreamCut

T = TypeVar("T")


class Part(NamedTuple):
    """The stream of one node, by its number among all streams."""

    number: int
    node: int
    stream: Stream


class JoinedStreams:
    """A piece is made only when it is asked for, so that no more than one of each stream waits here."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._making: dict[asyncio.Task[bytes | None], Part] = {}

    async def open(
        self, route: Route, calls: Mapping[int, Call], serve_here: Callable[[Call], Awaitable[Stream]]
    ) -> Sequence[Part]:
        """Have each node serve its call, this one by `serve_here`, and ask for the first pieces. Problem, and what
        `serve_here` raises; `close` has to follow then too."""
        opened = []
        for node, call in calls.items():
            if node == call.node.leaders.number:
                stream = await serve_here(call)
            else:
                others = call.node.others()
                assert others is not None, "calls are split at the first node"
                stream = await forward(others, node, route, call)
            opened.append(Part(len(self._parts), node, stream))
            self._parts.append(opened[-1])
        for part in opened:
            self.ask(part)
        return opened

    def ask(self, part: Part) -> None:
        """Have the next piece of a stream made."""
        self._making[asyncio.ensure_future(anext(part.stream.pieces, None))] = part

    async def take(self, timeout_s: float | None = None) -> tuple[Part, bytes] | None:
        """Return a piece that was asked for, the one asked for first where several are made; None: there is none in
        this time. Problem, also for a stream that has ended or is cut; what a stream of this node raises."""
        made, _ = await asyncio.wait(self._making, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        first = next((making for making in self._making if making in made), None)
        if first is None:
            return None
        part = self._making.pop(first)
        with suppress(StreamCut):
            piece = first.result()
            if piece is not None:
                return part, piece
        text = f"node {part.node} ended its part of the answer too early"
        raise Problem(503, "NODE_SILENT", text, "Ask again; `pqbroker cell list` shows the cells of each node.")

    async def close(self) -> None:
        """End all streams."""
        for making in self._making:
            making.cancel()
        if self._making:
            await asyncio.wait(self._making)
        for part in self._parts:
            await part.stream.pieces.aclose()


async def read_piece(read: Callable[[bytes], T], part: Part, piece: bytes) -> T:
    """Return what a function reads in a piece, a long one in a thread. Problem for what this version does not know."""
    try:
        return read(piece) if len(piece) <= IN_LOOP_BYTES else await asyncio.to_thread(read, piece)
    except (LookupError, TypeError, ValueError, RecursionError):
        raise unknown_answer(part.node) from None
