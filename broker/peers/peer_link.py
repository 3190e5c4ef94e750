"""One end of a peer link over a stream: performs `link_rules.py`, sends requests, notes and heartbeats, and hands what
comes to its user.

Budgets: bytes that the other end does not take, requests that are in work here and their bytes. A request over one of
them is refused; a note or an answer that the other end does not take breaks the link, because a mirror with a gap is
worse than one that begins again.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Protocol, cast

from pqbroker.broker.peers.link_rules import (
    NONCE_BYTES,
    REQUESTS_MAX,
    LinkBusy,
    LinkRules,
    LinkTerms,
)
from pqbroker.broker.peers.peer_frames import (
    PEER_FRAME_HEAD_BYTES,
    FrameKind,
    LinkBroken,
    PeerFrame,
    encode_peer_frame,
)


class PeerRefused(Exception):
    """The other end refused a request, or did not answer in time; the text says why."""


class PeerUser(Protocol):
    """The part of a node that a link carries something for."""

    def opened(self, link: "PeerLink") -> None:
        """The link is open: both ends have proved that they know the secret."""

    def noted(self, link: "PeerLink", payload: bytes) -> None:
        """A note came. LinkBroken if it is none that this version knows."""

    async def answer(self, link: "PeerLink", payload: bytes) -> bytes:
        """Answer a request. PeerRefused: the other end gets the text."""

    def closed(self, link: "PeerLink", why: str) -> None:
        """The link is closed, whether it was open or not."""


class PeerLink(asyncio.Protocol):
    """One end. `is_door`: it was come to."""

    def __init__(self, terms: LinkTerms, user: PeerUser, *, is_door: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._terms = terms
        self._user = user
        self._is_door = is_door
        self._rules = LinkRules(terms, os.urandom(NONCE_BYTES), self._loop.time(), is_door=is_door)
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._work: dict[asyncio.Task[bytes], int] = {}
        """Requests in work, and their bytes."""
        self._bytes_in_work = 0
        self._why = ""
        self.was_left = False
        """True once the other end has closed the link, as the end of its process does."""
        self._beat: asyncio.TimerHandle | None = None

    _transport: asyncio.WriteTransport

    @property
    def node(self) -> int:
        """Return the number of the node at the comer's end."""
        return self._rules.node

    @property
    def is_open(self) -> bool:
        return self._rules.is_open and not self._why

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        if not self._is_door:
            self._send(self._rules.hello())
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._why:
            return
        was_open = self._rules.is_open
        try:
            replies, taken = self._rules.received(data, self._loop.time())
            for reply in replies:
                self._send(reply)
            if self._rules.is_open and not was_open:
                self._user.opened(self)
            for frame in taken:
                self._take(frame)
        except LinkBroken as broken:
            self.close(str(broken))

    def connection_lost(self, exc: Exception | None) -> None:
        self.was_left = not self._why
        self._end("the other end is gone" if exc is None else f"the other end is gone: {exc}")

    def close(self, why: str) -> None:
        """Close the link at once: what waits for an answer is refused with this reason."""
        self._end(why)
        self._transport.abort()

    def allow_silence(self, silence_s: float) -> None:
        """Have another silence break the link from now on."""
        self._rules.silence_s = silence_s

    def note(self, payload: bytes) -> None:
        """Send something that is not answered; an end that does not take it loses the link."""
        if self.is_open:
            self._send_or_break(PeerFrame(FrameKind.NOTE, 0, payload))

    async def ask(self, payload: bytes, timeout_s: float) -> bytes:
        """Return the answer of the other end. PeerRefused, LinkBusy."""
        if not self.is_open:
            raise PeerRefused(f"the link to the other node is closed: {self._why or 'it is not open yet'}")
        if len(payload) + PEER_FRAME_HEAD_BYTES > self._terms.frame_bytes_max:
            raise PeerRefused(_too_long("request", payload, self._terms))
        if self._unsent() + len(payload) > self._terms.frame_bytes_max:
            raise LinkBusy("the other node does not take what it is sent; try again later")
        request_id = self._rules.ask()
        answer = self._answers[request_id] = self._loop.create_future()
        self._send(PeerFrame(FrameKind.REQUEST, request_id, payload))
        try:
            async with asyncio.timeout(timeout_s):
                answered: bytes = await answer
                return answered
        except TimeoutError:
            raise PeerRefused(f"the other node did not answer within {timeout_s:g} s") from None
        finally:
            self._answers.pop(request_id, None)

    def _take(self, frame: PeerFrame) -> None:
        if frame.kind is FrameKind.NOTE:
            self._user.noted(self, frame.payload)
        elif frame.kind is FrameKind.REQUEST:
            self._serve(frame)
        else:
            waiting = self._answers.get(frame.request_id)
            if waiting is not None and not waiting.done():
                _resolve(waiting, frame)

    def _serve(self, frame: PeerFrame) -> None:
        size = len(frame.payload)
        if len(self._work) >= REQUESTS_MAX:
            raise LinkBroken(f"more than {REQUESTS_MAX} requests came that are not answered yet")
        if self._work and self._bytes_in_work + size > self._terms.frame_bytes_max:
            text = f"requests of {self._bytes_in_work} bytes are in work; try again later"
            self._send_or_break(PeerFrame(FrameKind.REFUSAL, frame.request_id, text.encode()))
            return
        self._bytes_in_work += size
        task = self._loop.create_task(self._user.answer(self, frame.payload))
        self._work[task] = size
        task.add_done_callback(lambda done: self._finish(done, frame.request_id))

    def _finish(self, task: "asyncio.Task[bytes]", request_id: int) -> None:
        self._bytes_in_work -= self._work.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, PeerRefused):
            self.close("a request failed here; this is a defect")
            raise error
        if not self.is_open:
            return
        kind, payload = (FrameKind.ANSWER, task.result()) if error is None else (FrameKind.REFUSAL, str(error).encode())
        if len(payload) + PEER_FRAME_HEAD_BYTES > self._terms.frame_bytes_max:
            kind, payload = FrameKind.REFUSAL, _too_long("answer", payload, self._terms).encode()
        self._send_or_break(PeerFrame(kind, request_id, payload))

    def _watch(self) -> None:
        try:
            self._rules.check_silence(self._loop.time())
        except LinkBroken as broken:
            self.close(str(broken))
            return
        if self._rules.is_open:
            self._send_or_break(PeerFrame(FrameKind.HEARTBEAT, 0, b""))
        if not self._why:
            self._beat = self._loop.call_later(self._terms.beat_s, self._watch)

    def _send_or_break(self, frame: PeerFrame) -> None:
        if self._unsent() + len(frame.payload) > self._terms.frame_bytes_max:
            self.close(f"the other end does not take what it is sent: {self._unsent()} bytes wait")
        else:
            self._send(frame)

    def _send(self, frame: PeerFrame) -> None:
        self._transport.write(encode_peer_frame(frame))

    def _unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def _end(self, why: str) -> None:
        if self._why:
            return
        self._why = why
        if self._beat is not None:
            self._beat.cancel()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(PeerRefused(f"the link to the other node closed: {why}"))
        for task in list(self._work):
            task.cancel()
        self._user.closed(self, why)


def _too_long(what: str, payload: bytes, terms: LinkTerms) -> str:
    return f"the {what} has {len(payload)} bytes, more than a frame of {terms.frame_bytes_max} between nodes holds"


def _resolve(waiting: "asyncio.Future[bytes]", frame: PeerFrame) -> None:
    if frame.kind is FrameKind.ANSWER:
        waiting.set_result(frame.payload)
    else:
        waiting.set_exception(PeerRefused(frame.payload.decode(errors="replace")))


class PeerDoor:
    """A Unix socket that other processes of this broker come to; at most `links_max` at once."""

    def __init__(self, terms: LinkTerms, user: PeerUser, links_max: int) -> None:
        self._terms = terms
        self._user = user
        self._links_max = links_max
        self._links: set[PeerLink] = set()
        self._server: asyncio.Server | None = None

    async def open(self, path: str) -> None:
        """Listen at a path that nobody else may reach; what an earlier process left there is removed. OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._server = await asyncio.get_running_loop().create_unix_server(self._come, path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.close("this node stops")

    def _come(self) -> asyncio.Protocol:
        if len(self._links) >= self._links_max:
            return _Refused()
        link = PeerLink(self._terms, _Counted(self._user, self._links), is_door=True)
        self._links.add(link)
        return link


class _Refused(asyncio.Protocol):
    """Closes a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).abort()


class _Counted:
    """A user whose links leave a set when they close."""

    def __init__(self, user: PeerUser, links: set[PeerLink]) -> None:
        self._user = user
        self._links = links
        self.opened, self.noted, self.answer = user.opened, user.noted, user.answer

    def closed(self, link: PeerLink, why: str) -> None:
        self._links.discard(link)
        self._user.closed(link, why)


async def come_to_door(path: str, terms: LinkTerms, make_user: Callable[[], PeerUser]) -> PeerLink:
    """Return a link to the door at a path; it may not be open yet. OSError."""
    _, link = await asyncio.get_running_loop().create_unix_connection(
        lambda: PeerLink(terms, make_user(), is_door=False), path
    )
    return link
