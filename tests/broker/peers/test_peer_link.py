"""Links between two ends in one process, over real sockets, and enemies at one of them."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pqbroker.broker.peers.link_rules import LINK_VERSION, NONCE_BYTES, LinkBusy, LinkRules, LinkTerms
from pqbroker.broker.peers.peer_frames import FrameKind, PeerFrame, PeerFrameReader, encode_peer_frame
from pqbroker.broker.peers.peer_link import PeerDoor, PeerLink, PeerRefused, come_to_door

PATIENCE_S = 30.0
TERMS = LinkTerms(b"known to both", node=3, frame_bytes_max=100_000, silence_s=20.0)
HASTY = replace(TERMS, greeting_s=0.3, beat_s=0.1)


class User:
    """One end of a link. It keeps each note, answers a request with the request's bytes twice, and refuses `no`."""

    def __init__(self) -> None:
        self.notes: asyncio.Queue[bytes] = asyncio.Queue()
        self.is_open = asyncio.Event()
        self.why: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.held = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.link: PeerLink | None = None

    def opened(self, link: PeerLink) -> None:
        self.link = link
        self.is_open.set()

    def noted(self, link: PeerLink, payload: bytes) -> None:
        self.notes.put_nowait(payload)

    async def answer(self, link: PeerLink, payload: bytes) -> bytes:
        if payload == b"no":
            raise PeerRefused("no is no request")
        if payload.startswith(b"wait"):
            try:
                await self.held.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return b"waited"
        return payload * 2

    def closed(self, link: PeerLink, why: str) -> None:
        if not self.why.done():
            self.why.set_result(why)


@asynccontextmanager
async def _linked(terms: LinkTerms = TERMS) -> AsyncIterator[tuple[User, User, PeerLink]]:
    """The user at the door, the one that came, and the link of that."""
    at_door, comer = User(), User()
    door = PeerDoor(replace(terms, node=0), at_door, 4)
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "peers"))
        await door.open(path)
        link = await come_to_door(path, terms, lambda: comer)
        async with asyncio.timeout(PATIENCE_S):
            await at_door.is_open.wait()
            await comer.is_open.wait()
        try:
            yield at_door, comer, link
        finally:
            link.close("the test ends")
            await door.close()


@asynccontextmanager
async def _enemy(terms: LinkTerms = TERMS) -> AsyncIterator[tuple[User, socket.socket]]:
    """The user at a door, and a socket that has come to it."""
    user = User()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    link = PeerLink(terms, user, is_door=True)
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: link, sock=ours)
    with theirs:
        try:
            yield user, theirs
        finally:
            link.close("the test ends")


async def _why(user: User) -> str:
    async with asyncio.timeout(PATIENCE_S):
        return await user.why


async def test_requests_and_notes_go_both_ways() -> None:
    async with _linked() as (at_door, comer, link), asyncio.timeout(PATIENCE_S):
        assert at_door.link is not None
        assert at_door.link.node == 3
        assert await link.ask(b"ab", PATIENCE_S) == b"abab"
        assert await at_door.link.ask(b"c" * 20_000, PATIENCE_S) == b"c" * 40_000
        link.note(b"from the comer")
        at_door.link.note(b"from the door")
        assert await at_door.notes.get() == b"from the comer"
        assert await comer.notes.get() == b"from the door"


async def test_a_request_may_be_refused_or_be_too_long_and_others_continue() -> None:
    async with _linked() as (_, _, link):
        with pytest.raises(PeerRefused, match="no is no request"):
            await link.ask(b"no", PATIENCE_S)
        with pytest.raises(PeerRefused, match="the request has 100000 bytes"):
            await link.ask(bytes(100_000), PATIENCE_S)
        with pytest.raises(PeerRefused, match="the answer has 120000 bytes"):
            await link.ask(bytes(60_000), PATIENCE_S)
        assert await link.ask(b"x", PATIENCE_S) == b"xx"


async def test_a_request_that_is_not_answered_in_time_is_given_up() -> None:
    async with _linked() as (at_door, _, link):
        with pytest.raises(PeerRefused, match=r"did not answer within 0\.01 s"):
            await link.ask(b"wait", 0.01)
        at_door.held.set()
        assert await link.ask(b"x", PATIENCE_S) == b"xx"


async def test_a_link_that_closes_refuses_what_waits_and_stops_what_is_in_work() -> None:
    async with _linked() as (at_door, _, link):
        waiting = asyncio.ensure_future(link.ask(b"wait", PATIENCE_S))
        assert await link.ask(b"x", PATIENCE_S) == b"xx"  # so `wait` is in work
        assert at_door.link is not None
        at_door.link.close("it is over")
        with pytest.raises(PeerRefused, match="closed: the other end is gone"):
            await waiting
        with pytest.raises(PeerRefused, match="is closed"):
            await link.ask(b"x", PATIENCE_S)
        assert await _why(at_door) == "it is over"
        async with asyncio.timeout(PATIENCE_S):
            await at_door.cancelled.wait()


async def test_requests_in_work_have_a_budget_of_bytes() -> None:
    async with _linked() as (at_door, _, link):
        waiting = asyncio.ensure_future(link.ask(b"wait" + bytes(50_000), PATIENCE_S))
        await asyncio.sleep(0)
        with pytest.raises(PeerRefused, match="requests of 50004 bytes are in work; try again later"):
            await link.ask(bytes(50_000), PATIENCE_S)
        at_door.held.set()
        assert await waiting == b"waited"


async def test_an_open_link_beats_and_closes_when_the_other_end_does_not() -> None:
    async with _enemy(replace(TERMS, silence_s=2.0)) as (user, theirs), asyncio.timeout(PATIENCE_S):
        loop, rules = asyncio.get_running_loop(), LinkRules(TERMS, bytes(NONCE_BYTES), 0.0, is_door=False)
        frames, reader = [rules.hello()], PeerFrameReader(1000)
        while not rules.is_open:
            await loop.sock_sendall(theirs, b"".join(map(encode_peer_frame, frames)))
            frames, _ = rules.received(await loop.sock_recv(theirs, 1000), 0.0)
        kinds = {frame.kind for frame in reader.received(await loop.sock_recv(theirs, 1000))}
        assert kinds == {FrameKind.HEARTBEAT}
        assert "nothing came for" in await _why(user)


async def test_who_says_nothing_loses_the_link() -> None:
    async with _enemy(HASTY) as (user, _):
        assert "the greeting did not end" in await _why(user)


async def test_who_never_ends_a_frame_loses_the_link() -> None:
    async with _enemy(HASTY) as (user, theirs):
        theirs.send(b"\0\0\0\x64\1")
        assert "the greeting did not end" in await _why(user)
        assert not user.is_open.is_set()


async def test_who_lies_about_a_length_loses_the_link() -> None:
    async with _enemy() as (user, theirs):
        theirs.send(b"\xff\xff\xff\xff")
        assert "says that it has 4294967295 bytes" in await _why(user)


async def test_who_speaks_another_version_loses_the_link_and_is_told_nothing() -> None:
    async with _enemy() as (user, theirs):
        payload = b"pqb-peer" + (LINK_VERSION + 1).to_bytes(2) + bytes(34)
        theirs.send(encode_peer_frame(PeerFrame(FrameKind.HELLO, 0, payload)))
        assert f"speaks version {LINK_VERSION + 1}" in await _why(user)
        assert await asyncio.get_running_loop().sock_recv(theirs, 1) == b""


async def test_who_skips_the_greeting_is_not_served() -> None:
    async with _enemy() as (user, theirs):
        theirs.send(encode_peer_frame(PeerFrame(FrameKind.REQUEST, 1, b"x")))
        assert "REQUEST came while the link was expecting" in await _why(user)


async def test_who_never_reads_loses_the_link() -> None:
    async with _linked() as (at_door, _, link):
        assert at_door.link is not None
        transport = link._transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        for _ in range(200):
            at_door.link.note(bytes(50_000))
        assert "does not take what it is sent" in await _why(at_door)


async def test_a_request_to_who_never_reads_is_refused() -> None:
    async with _linked() as (at_door, _, link):
        assert at_door.link is not None
        transport = link._transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        asked = [asyncio.ensure_future(at_door.link.ask(bytes(50_000), PATIENCE_S)) for _ in range(40)]
        done, _ = await asyncio.wait(asked, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(next(iter(done)).exception(), LinkBusy)
        at_door.link.close("the test ends")
        await asyncio.wait(asked)
        assert {type(one.exception()) for one in asked} == {LinkBusy, PeerRefused}


async def test_a_door_refuses_one_link_too_many() -> None:
    user = User()
    door = PeerDoor(replace(TERMS, node=0), user, 1)
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "peers"))
        await door.open(path)
        first = await come_to_door(path, TERMS, User)
        second_user = User()
        await come_to_door(path, TERMS, lambda: second_user)  # accepted, and closed at once
        assert "the other end is gone" in await _why(second_user)
        async with asyncio.timeout(PATIENCE_S):
            await user.is_open.wait()
        assert await first.ask(b"x", PATIENCE_S) == b"xx"
        first.close("the test ends")
        await door.close()
