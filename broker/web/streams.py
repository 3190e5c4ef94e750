"""Answers of unknown length: pieces are sent as they come, each when the client has read the one before.

A client that reads too slowly is cut as any that does not take its answer (`slots`), one that goes is noticed at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import partial

from aiohttp import web

from pqbroker.broker.web.door import slot_of
from pqbroker.broker.web.routing.problems import too_many_followers
from pqbroker.broker.web.routing.routes import Stream, StreamCut
from pqbroker.broker.web.slots import Slot
from pqbroker.conf.shares import Shares

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Nothing in between may keep pieces back."""


class Followers:
    """The streams under way, `count_max` of them at most, shared by conf/shares.py."""

    def __init__(self, count_max: Callable[[], int]) -> None:
        self._count_max = count_max
        self._ends: set[asyncio.Future[None]] = set()
        self._shares = Shares[str]()

    def __len__(self) -> int:
        return len(self._ends)

    def close(self) -> None:
        """End all streams: the node stops."""
        for end in self._ends:
            _resolve(end)

    async def send(self, request: web.Request, stream: Stream) -> web.StreamResponse:
        """The answer, once it has ended: by itself, with its client, or with the node. Problem before it begins, and
        whatever the first piece of one that has an end raises."""
        slot = slot_of(request)
        most, holder = self._count_max(), slot.holder
        if not self._shares.may_take(most, holder):
            await stream.pieces.aclose()
            raise too_many_followers(most)
        end = asyncio.get_running_loop().create_future()
        self._ends.add(end)
        self._shares.take(holder)
        slot.when_left = partial(_resolve, end)
        answer = web.StreamResponse(headers={**_HEADERS, "Content-Type": stream.content_type})
        try:
            async with aclosing(stream.pieces):
                first = await _next(stream.pieces, end) if stream.has_end else b""
                with suppress(ConnectionError):
                    await answer.prepare(request)
                    await _send_pieces(answer, first, stream, slot, end)
        finally:
            self._ends.discard(end)
            self._shares.give_back(holder)
            slot.when_left = None
        return answer


async def _send_pieces(
    answer: web.StreamResponse, piece: bytes | None, stream: Stream, slot: Slot, end: "asyncio.Future[None]"
) -> None:
    """Send this piece and all others. A client that must get all of them is cut where it does not."""
    try:
        while piece is not None and slot.hold(len(piece)):
            if piece:
                slot.wait()
                await answer.write(piece)
                slot.let_go()
            piece = await _next(stream.pieces, end)
        is_whole = piece is None and not end.done()
    except StreamCut:
        is_whole = False
    if stream.has_end and not is_whole:
        slot.abort()
    await answer.write_eof()


async def _next(pieces: AsyncIterator[bytes], end: "asyncio.Future[None]") -> bytes | None:
    """Return the next piece; None if the stream has ended or the client has gone."""
    making = asyncio.ensure_future(anext(pieces, None))
    try:
        await asyncio.wait((making, end), return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            return await making
    finally:
        if not making.done():
            making.cancel()
            await asyncio.wait((making,))
    return None


def _resolve(end: "asyncio.Future[None]") -> None:
    if not end.done():
        end.set_result(None)
