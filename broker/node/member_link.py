"""Link of a node to the first one, which is come to again whenever it closes: mirrors come over it, requests of clients
and words about this node's cells go.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pqbroker.broker.ground.metrics import samples
from pqbroker.broker.node.admissions import Admissions
from pqbroker.broker.node.backup_calls import BackupCalls
from pqbroker.broker.node.commit_ways import COMMIT_STEPS, CommitWays, Way
from pqbroker.broker.node.mirrored_rows import HIVE, MirroredRows
from pqbroker.broker.node.node_place import FIRST
from pqbroker.broker.node.orders import Orders
from pqbroker.broker.node.parts import Node
from pqbroker.broker.node.reports import NodeReports
from pqbroker.broker.node.running_tablets import (
    RUNNING_LOOK_S,
    CellTablets,
    decode_tablets,
    encode_tablets,
    running_tablets,
    until_changed,
)
from pqbroker.broker.node.sample_forms import encode_samples
from pqbroker.broker.node.served_partitions import CALLS, ServedPartitions
from pqbroker.broker.peers.link_rules import LinkBusy, LinkTerms
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerLink, PeerRefused, come_to_door
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import CellId, TabletId

if TYPE_CHECKING:
    from pqbroker.broker.node.served_tablets import ServedTablets
    from pqbroker.broker.web.peer_calls import PeerCalls

log = logging.getLogger(__name__)


def _load_web() -> Any:
    from pqbroker.broker.web import peer_calls

    return peer_calls


def _load_sessions() -> Any:
    from pqbroker.broker.services.tables import sessions_here

    return sessions_here


def _load_tablets() -> Any:
    from pqbroker.broker.node import served_tablets

    return served_tablets


class _Told(NamedTuple):
    """Last word to the first node about tablets. A cell that was given away and back while this node knew of neither
    was open all the time, and counts again once it is named behind the change of the hive that gave it back."""

    hive_number: int | None
    """Last change of the hive that this node knew of; None: it knew of none."""
    tablets: CellTablets


_COMES_AGAIN_S: Final = 0.1
"""Seconds between tries to reach the first node."""
_web: LoadedLater[Any] = LoadedLater(_load_web)
_tablets: LoadedLater[Any] = LoadedLater(_load_tablets)
_sessions: LoadedLater[Any] = LoadedLater(_load_sessions)
_NOTHING: Final = _Told(None, {})


class MemberLink:
    """The link of one node, and what it carries."""

    def __init__(
        self, orders: Orders, terms: LinkTerms, settings: BrokerSettings,
        elsewhere: dict[CellId, dict[TabletId, int]],
    ) -> None:
        """`elsewhere`: gets the tablets that other nodes run."""
        self._door = orders.door
        self._terms = terms
        self._timeout_s = settings.peer_request_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._link: PeerLink | None = None
        self._opened = asyncio.Event()
        self._lost = asyncio.Event()
        self._coming: asyncio.Task[None] | None = None
        self._told = _NOTHING
        self._elsewhere = elsewhere
        self._served: ServedPartitions | None = None
        """None: this node tells of no tablet yet."""
        self._tell: Callable[[], None] = lambda: None
        """Has the first node know which tablets this one runs, if that has changed."""
        self._node: Node | None = None
        self._reports: NodeReports | None = None
        self._backups: BackupCalls | None = None
        self._web: PeerCalls | None = None
        """Calls of HTTP that the first node forwards; loaded with the first of them."""
        self._tablets: ServedTablets | None = None
        """Work on sorted tablets for the first node; loaded with the first of it."""
        self.rows = MirroredRows(self._note_ready)
        self.admissions = Admissions(lambda payload: self._ask(payload, self._timeout_s))
        self.ways = CommitWays(is_first=False, reach=lambda _: Way(FIRST, self._ask))

    def serve(self, node: Node) -> None:
        """Have this node answer the first one from now on."""
        self._node = node
        self._backups = BackupCalls(lambda: node.cell.current)

    def start(self) -> None:
        """Begin to come to the first node, for as long as this one runs."""
        self._coming = self._loop.create_task(self._keep_linked())

    async def watch(self) -> None:
        """Raise what ends the coming: a defect."""
        assert self._coming is not None
        await asyncio.shield(self._coming)

    async def follow(self, serving: Callable[[], OpenCell]) -> None:
        """Have what this node serves follow the mirrors, for as long as this runs."""

        async def changed() -> None:
            opened, number = serving(), self.rows.scheme_number
            try:
                is_changed = await opened.settings.follow(opened.scheme.settings, opened.topics.use_settings)
                if is_changed and self._node is not None:
                    await self._node.take_settings()
                await opened.topics.follow_scheme()
                await opened.sorted_tables.follow_scheme()
            finally:  # what a cell refuses is tried again, and must not keep the others from their clients
                self._tell()  # before the answer to what the first node asks behind the change
                self.rows.note_followed(number)
            await opened.others.follow_homes()  # a cell is opened by what the scheme says of it now

        await self.rows.follow(changed)

    async def keep_telling(self, serving: Callable[[], OpenCell], changed: asyncio.Event) -> None:
        """Have the first node know which tablets this one runs, and use them, for as long as this runs. `changed`: set
        when others may run."""
        self._served = ServedPartitions(serving, self.admissions)

        def tell() -> None:
            told = _Told(self.rows.numbers[HIVE], running_tablets(serving(), with_system=False))
            if told != self._told and self._opened.is_set():
                assert self._link is not None
                self._told = told
                self._link.note(encode_peer_call(PeerMethod.CONFIRM, encode_tablets(told.tablets)))

        self._tell = tell
        while True:
            tell()
            await asyncio.sleep(RUNNING_LOOK_S)
            await until_changed(changed)

    async def keep_reporting(self, node: Node) -> None:
        """Have the first node know what is wrong with this one, its figures and ends, for as long as this runs."""
        self._reports = NodeReports(node, self._report)
        await self._reports.run()

    def _report(self, payload: bytes) -> bool:
        if not self._opened.is_set():
            return False
        assert self._link is not None
        self._link.note(payload)
        return True

    async def stop(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait([self._coming])
        if self._link is not None:
            self._link.close("this node stops")

    @property
    def is_fresh(self) -> bool:
        """Return True while the mirrors are known to be young enough for this node to answer."""
        age_ms = self.rows.age_ms(self._now_ms())
        return age_ms is not None and age_ms <= self._terms.silence_s * 1000

    async def forward(self, caller: dict[str, Any], frame: memoryview) -> bytes:
        """Have the first node answer a client; one that is started again is waited for. PeerRefused, LinkBusy."""
        return await self._ask(encode_peer_call(PeerMethod.KAFKA, caller, frame), self._timeout_s)

    async def ask_timestamps(self, after: int) -> tuple[int, int]:
        """Return a block of commit timestamps, all greater than `after`. CommitRefused."""
        try:
            _, told, _ = decode_peer_call(
                await self._ask(encode_peer_call(PeerMethod.TIMESTAMPS, after), self._terms.silence_s)
            )
            first, end = told
            if not after < first < end <= TIMESTAMP_MAX:
                raise ValueError(f"timestamps from {first} to {end} are no block behind {after}")
        except (PeerRefused, LinkBusy, LinkBroken, TypeError, ValueError) as error:
            raise CommitRefused(f"the first node, which gives commit timestamps, gave none: {error}") from error
        return first, end

    def opened(self, link: PeerLink) -> None:
        self._link, self._told = link, _NOTHING
        self._opened.set()
        if self._reports is not None:
            self._reports.forget()
        self._tell()  # a first node that was started again names no leader of these partitions before

    def noted(self, link: PeerLink, payload: bytes) -> None:
        method, head, body = decode_peer_call(payload)
        if method is PeerMethod.RUNNING:
            self._take_running(head)
            return
        if method is PeerMethod.WEB:
            self._take_of_web(head)
            return
        if method not in (PeerMethod.PORTION, PeerMethod.CHANGE):
            raise LinkBroken(f"a note {method.name} came from the first node")
        self.rows.take(head, body, is_portion=method is PeerMethod.PORTION)

    async def answer(self, link: PeerLink, payload: bytes) -> bytes:
        """Answer the first node. PeerRefused."""
        try:
            method, head, body = decode_peer_call(payload)
        except LinkBroken as broken:
            raise PeerRefused(str(broken)) from broken
        if method in (PeerMethod.WEB, PeerMethod.TABLETS, PeerMethod.SESSIONS) and self._node is not None:
            asked = await self._followed(head)
            if method is PeerMethod.WEB:
                return await self._serve_web(self._node, asked, body)
            if method is PeerMethod.SESSIONS:
                return await self._serve_sessions(self._node, asked, body)
            return encode_peer_call(method, await self._work(self._node, asked))
        if method is PeerMethod.SAMPLES and self._node is not None:
            taken = await self._node.turns.finish(samples(self._node.metrics))
            return encode_peer_call(method, None, await asyncio.to_thread(encode_samples, taken))
        if method in COMMIT_STEPS and self._node is not None:
            return await self.ways.answer(self._node.cell.current.commits, method, head, body)
        if method is PeerMethod.BACKUP and self._backups is not None:
            return encode_peer_call(method, await self._backups.answer(head))
        if method not in CALLS or self._served is None:
            raise PeerRefused(f"this node answers no {method.name} now")
        return await self._served.answer(method, head)

    def closed(self, link: PeerLink, why: str) -> None:
        if self._opened.is_set():
            log.warning("the link to the first node closed: %s", why)
        self._opened.clear()
        self._lost.set()
        if self._web is not None:
            self._web.close()
        if self._tablets is not None:
            self._tablets.close()
        if self._backups is not None:
            self._loop.create_task(self._backups.leave())

    async def _followed(self, head: Any) -> Any:
        """Return what is asked, once this node serves what the scheme had when it was asked. PeerRefused."""
        try:
            number, asked = head
            async with asyncio.timeout(self._terms.silence_s):
                await self.rows.followed(int(number))
        except (TypeError, ValueError) as bad:
            raise PeerRefused(f"a question with a number of the scheme was expected: {bad}") from bad
        except TimeoutError:
            raise PeerRefused("it does not serve yet what was changed last") from None
        return asked

    async def _work(self, node: Node, asked: Any) -> Any:
        """Do a part of some work on tablets of tables. PeerRefused."""
        if self._tablets is None:
            serving = await _tablets.get()
            self._tablets = self._tablets or serving.ServedTablets(node)
        try:
            return await self._tablets.answer(asked)
        except ValueError as bad:
            raise PeerRefused(str(bad)) from bad

    async def _serve_sessions(self, node: Node, asked: Any, body: memoryview) -> bytes:
        """Do some work on sessions of tables. PeerRefused."""
        serving = await _sessions.get()
        try:
            head, answered = await serving.answer_session_call(node, asked, bytes(body))
        except ValueError as bad:
            raise PeerRefused(str(bad)) from bad
        return encode_peer_call(PeerMethod.SESSIONS, head, answered)

    async def _serve_web(self, node: Node, asked: Any, body: memoryview) -> bytes:
        """Answer a call of HTTP, or a question about a stream of one. PeerRefused."""
        if self._web is None:
            serving = await _web.get()
            self._web = self._web or serving.PeerCalls(node)
        if not self.is_fresh:
            raise PeerRefused("it has not heard of the first one for too long, so it answers nothing")
        try:
            head, answered = await self._web.answer(asked, bytes(body))
        except ValueError as bad:
            raise PeerRefused(str(bad)) from bad
        return encode_peer_call(PeerMethod.WEB, head, answered)

    def _take_of_web(self, told: Any) -> None:
        if self._web is not None:
            try:
                self._web.take(told)
            except ValueError as bad:
                raise LinkBroken(str(bad)) from bad

    async def _keep_linked(self) -> None:
        while True:
            self._lost.clear()
            try:
                await come_to_door(self._door, self._terms, lambda: self)
            except OSError as error:
                log.debug("the first node is not reached yet: %s", error)
            else:
                await self._use_link()
            await asyncio.sleep(_COMES_AGAIN_S)

    async def _use_link(self) -> None:
        """Follow scheme and hive over a link that was come to, and ask for their numbers, until it closes."""
        lost = self._loop.create_task(_wait(self._lost))
        using = self._loop.create_task(self._confirm_again_and_again())
        try:
            await asyncio.wait([lost, using], return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            using.cancel()
        if using.done() and not using.cancelled() and self._link is not None:
            self._link.close(f"it cannot be used: {using.exception()}")

    async def _confirm_again_and_again(self) -> None:
        await self._opened.wait()
        await self._ask(encode_peer_call(PeerMethod.FOLLOW, self.rows.numbers), self._timeout_s)
        while True:
            asked_ms = self._now_ms()
            answer = await self._ask(encode_peer_call(PeerMethod.CONFIRM, None), self._timeout_s)
            _, numbers, _ = decode_peer_call(answer)
            self.rows.confirm(numbers, asked_ms)
            await asyncio.sleep(self._terms.beat_s)

    def _take_running(self, told: Any) -> None:
        """Take what other nodes run now; the rest of it stays, unless this is all. LinkBroken."""
        if not isinstance(told, dict) or not isinstance(told.get("closed"), list):
            raise LinkBroken("the first node named no tablets")
        running = decode_tablets(told.get("running"))
        if told.get("all"):
            self._elsewhere.clear()
        for cell in told["closed"]:
            self._elsewhere.pop(cell, None)
        self._elsewhere.update(running)

    async def _note_ready(self, cell: CellId) -> None:
        try:
            await self._ask(encode_peer_call(PeerMethod.CELL_READY, cell), self._timeout_s)
        except LinkBusy as busy:
            raise PeerRefused(str(busy)) from busy

    async def _ask(self, payload: bytes, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(self._terms.silence_s):
                await self._opened.wait()
        except TimeoutError:
            raise PeerRefused("the first node is not reached") from None
        assert self._link is not None
        return await self._link.ask(payload, timeout_s)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
