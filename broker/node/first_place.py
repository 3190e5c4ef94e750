"""The first node's side of the peer link: it answers what others forward, and sends scheme and hive to them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Final

from pqbroker.broker.ground.access import DirectCaller
from pqbroker.broker.ground.metrics import Sample
from pqbroker.broker.ground.other_nodes import NodeSilent, NodeState
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.forwarding import answer_forwarded
from pqbroker.broker.node.admissions import answer_admission
from pqbroker.broker.node.backup_calls import CopyElsewhere, commits_paused
from pqbroker.broker.node.commit_ways import COMMIT_STEPS, Way
from pqbroker.broker.node.mirrored_rows import HIVE, SCHEME
from pqbroker.broker.node.node_place import FIRST, NodePlace
from pqbroker.broker.node.partition_copies import PartitionCopies
from pqbroker.broker.node.parts import Node
from pqbroker.broker.node.reports import PartitionEnd, take_ends
from pqbroker.broker.node.running_tablets import (
    RUNNING_LOOK_S,
    CellTablets,
    decode_tablets,
    encode_tablets,
    running_tablets,
    until_changed,
)
from pqbroker.broker.node.sample_forms import decode_samples
from pqbroker.broker.peers.link_rules import LinkBusy
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerDoor, PeerLink, PeerRefused
from pqbroker.broker.peers.peer_methods import WORK_GOES_ON, PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.serving.timestamps import NodeTimestamps
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.hive import CellState
from pqbroker.storage.copy_steps import CellElsewhere
from pqbroker.storage.engine import BackupRefused, CommitRefused, EngineError, ShardLost
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.numbered_changes import ChangeLog, NumberedChange

log = logging.getLogger(__name__)

PLACING_LOOK_S: Final = 0.05
"""Seconds between looks while cells are to be moved."""
PLACING_QUIET_S: Final = 1.0
"""Seconds between looks for nodes that have served for long enough to have their cells back."""
PLACED_AGAIN_S: Final = 0.5
SAMPLES_S: Final = 10.0
"""Seconds that a node has to answer with its samples."""
BACKUP_S: Final = 20.0
"""Seconds that a node has to say how far its copy for a backup is, which it does after a few in any case."""
ABSENT_S: Final = 30.0
"""Seconds that nodes have to come after a start, or after the system cell was opened again, before others run their
cells."""


def _load_staging() -> Any:
    from pqbroker.broker.services.tables import staging

    return staging


_staging: LoadedLater[Any] = LoadedLater(_load_staging)


class FirstPlace:
    """The door, and what is known of the nodes that have come to it."""

    def __init__(self, place: NodePlace, node: Node, dispatcher: Dispatcher) -> None:
        self._place = place
        self._node = node
        self._dispatcher = dispatcher
        self._door = PeerDoor(place.terms, self, links_max=2 * place.count)
        self._ends: dict[PeerLink, list[Callable[[], None]]] = {}
        """Links, each with what ends its following."""
        self._since: dict[int, float] = {}
        """Nodes that follow, each with the time since when."""
        self._gone: dict[int, float] = {}
        """Nodes that do not follow, each with the time from which others run its cells."""
        self._came = asyncio.Event()
        self._left = asyncio.Event()
        """Set when a node is gone."""
        self._states: dict[int, NodeState] = {}
        """Reports of the nodes that are linked."""
        self._allowed_s = 0.0
        """Seconds that a node whose link closes has to come again before others run its cells."""
        self._keeps_homes = False
        """True once the whole broker stops: then cells stay where they are."""
        self._told: dict[PeerLink, dict[CellId, Mapping[TabletId, int]]] = {}
        """Links that follow, each with what its node knows of tablets that others run."""
        self._works = 0
        """Work on sorted tablets that other nodes were given, which numbers it."""
        self.copies = PartitionCopies(
            lambda: self._node.cell.current, place.elsewhere, self._link_to,
            node.settings.peer_request_timeout_ms / 1000,
        )  # fmt: skip
        place.ways.use(self._way_to)

    async def start(self) -> None:
        """Open the door. OSError."""
        self._place.present.add(self._place.number)
        now = self._node.loop.time()
        self._since[self._place.number] = now
        others = range(FIRST + 1, self._place.count + 1)
        self._gone = dict.fromkeys(others, now + ABSENT_S)
        await self._door.open(self._place.door)

    async def stop(self) -> None:
        await self._door.close()

    async def keep_telling(self) -> None:
        """Have each node know which tablets others run, for as long as this runs."""
        while True:
            own = running_tablets(self._node.cell.current, with_system=True)
            for link in list(self._told):
                self._tell(link, own)
            await asyncio.sleep(RUNNING_LOOK_S)
            await until_changed(self._place.changed)

    async def keep_placing(self) -> None:
        """Have others run the cells of nodes that are gone, and give them back, for as long as this runs."""
        is_moving = False
        while True:
            await self._until_placing(is_moving=is_moving)
            if self._keeps_homes:
                continue
            try:
                is_moving = await self._place_cells()
            except (BundleRefused, CommitRefused, EngineError, ShardLost) as refused:
                log.warning("cells of nodes that are gone, or came back, move later: %s", refused)
                await asyncio.sleep(PLACED_AGAIN_S)

    async def _until_placing(self, *, is_moving: bool) -> None:
        """Return when cells may have to move: soon while some do or a node is gone, else when one may be."""
        now = self._node.loop.time()
        due_s = min((since - now for since in self._gone.values()), default=PLACING_QUIET_S)
        wait_s = PLACING_LOOK_S if is_moving else min(max(due_s, PLACING_LOOK_S), PLACING_QUIET_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._left.wait()
        self._left.clear()

    async def _place_cells(self) -> bool:
        """Move a cell of each node that is gone, or one back; return True if one came back."""
        others, now = self._node.cell.current.others, self._node.loop.time()
        for node in [node for node, since in sorted(self._gone.items()) if since <= now]:
            await others.between.take_over(node)
        return_s = self._node.settings.node_return_ms / 1000
        return await others.between.give_back({node for node, since in self._since.items() if now - since >= return_s})

    def cell_elsewhere(self, cell: CellId) -> CellElsewhere:
        return CopyElsewhere(partial(self._ask_backup, self._home(cell)), cell)

    def commits_paused(self) -> AbstractAsyncContextManager[None]:
        return commits_paused([partial(self._ask_backup, link.node) for link in self._told])

    async def _ask_backup(self, node: int | None, asked: Any) -> Any:
        """Ask a node for a step of a backup. BackupRefused."""
        link = self._link_of(node)
        if link is None:
            raise BackupRefused(f"node {node} is not linked to the first one: try again when all nodes serve")
        try:
            payload = encode_peer_call(PeerMethod.BACKUP, asked)
            _, told, _ = decode_peer_call(await link.ask(payload, BACKUP_S))
        except (LinkBroken, LinkBusy, PeerRefused) as refused:
            raise BackupRefused(f"node {node}: {refused}") from refused
        return told

    def states(self) -> Mapping[int, NodeState]:
        return self._states

    def away(self) -> Mapping[int, str]:
        """Return nodes whose cells others run by now, or nobody; nothing once the whole broker stops."""
        now = self._node.loop.time()
        gone = {} if self._keeps_homes else {node: now - since for node, since in self._gone.items() if since <= now}
        return {node: f"it has not been linked to the first node for {late_s:.0f} s" for node, late_s in gone.items()}

    async def samples(self) -> Mapping[int, Sequence[Sample]]:
        """Return the samples of each other node. NodeSilent."""
        links = {link.node: link for link in self._told}
        others = range(FIRST + 1, self._place.count + 1)
        silent = [node for node in others if node not in links]
        if silent:
            raise NodeSilent(f"node {silent[0]} is not linked to the first one")
        found = await asyncio.gather(*(self._samples_of(links[node]) for node in others))
        return dict(zip(others, found, strict=True))

    async def _samples_of(self, link: PeerLink) -> list[Sample]:
        try:
            answer = await link.ask(encode_peer_call(PeerMethod.SAMPLES, None), SAMPLES_S)
            _, _, body = decode_peer_call(answer)
            return await asyncio.to_thread(decode_samples, body)
        except (LinkBroken, LinkBusy, PeerRefused) as refused:
            raise NodeSilent(f"node {link.node}: {refused}") from refused

    async def ask_web(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        """Have another node serve a call of HTTP. NodeSilent."""
        return await self._ask(node, PeerMethod.WEB, asked, body)

    async def work_on_tablets(self, node: int, asked: Any) -> Any:
        """Have another node do some work on tablets of tables; return what it says at the end. NodeSilent."""
        self._works += 1
        work = self._works
        while True:
            told, _ = await self._ask(node, PeerMethod.TABLETS, [work, asked], b"")
            if told != WORK_GOES_ON:
                return told

    async def ask_sessions(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        """Have another node do some work on sessions of tables and their staged rows. NodeSilent."""
        return await self._ask(node, PeerMethod.SESSIONS, asked, body)

    async def look_after_staged(self, topics: Sequence[Topic], before_ms: int) -> None:
        """Look after staged rows of these topics, and of those that other nodes hold some of."""
        if topics or self._told:
            staging = await _staging.get()
            await staging.look_after_staged(DirectCaller(self._node), topics, before_ms)

    async def _ask(self, node: int, method: PeerMethod, asked: Any, body: bytes) -> tuple[Any, bytes]:
        """Ask another node for what it answers once it serves the scheme as it is now. NodeSilent."""
        link = self._link_of(node)
        if link is None:
            raise NodeSilent(f"node {node} is not linked to the first one")
        try:
            payload = encode_peer_call(method, [self._node.cell.current.scheme.changes.number, asked], body)
            answer = await link.ask(payload, self._node.settings.peer_request_timeout_ms / 1000)
            _, head, answered = decode_peer_call(answer)
        except (LinkBroken, LinkBusy, PeerRefused) as refused:
            raise NodeSilent(f"node {node}: {refused}") from refused
        return head, bytes(answered)

    async def restart_all(self) -> Mapping[str, Any]:
        """Have the parent process restart all nodes one by one. NodeSilent, with its reason where it refuses."""
        return await self._ask_parent(PeerMethod.RESTART_NODES)

    async def restart_state(self) -> Mapping[str, Any]:
        """Return how far that is. NodeSilent."""
        return await self._ask_parent(PeerMethod.RESTART_STATE)

    async def _ask_parent(self, method: PeerMethod) -> Mapping[str, Any]:
        try:
            told: Mapping[str, Any] = await self._place.ask_parent(method)
        except (LinkBroken, LinkBusy, PeerRefused) as refused:
            raise NodeSilent(str(refused)) from refused
        return told

    def tell_web(self, node: int, told: Any) -> None:
        link = self._link_of(node)
        if link is not None:
            link.note(encode_peer_call(PeerMethod.WEB, told))

    def begin_again(self) -> None:
        """Have all nodes follow the scheme and the hive of the system cell's new opening."""
        self._allowed_s = ABSENT_S
        for link in list(self._ends):
            link.close("the system cell was opened again")
        self._allowed_s = 0.0

    def keep_homes(self) -> None:
        """Move no cell any more."""
        self._keeps_homes = True

    async def empty(self, node: int) -> None:
        """Have the others run the cells of a node that is to be restarted. PeerRefused."""
        others = set(range(FIRST, self._place.count + 1)) - {node}
        try:
            async with asyncio.timeout(ABSENT_S):
                while not others <= self._place.present:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            missing = ", ".join(map(str, sorted(others - self._place.present)))
            raise PeerRefused(f"its cells stay, because these nodes do not serve: {missing}") from None
        self._place.present.discard(node)
        since = self._since.pop(node, None)
        try:
            await self._node.cell.current.others.between.empty(node)
        except BaseException as error:  # it is not restarted: it has its cells again when it has served for a while
            if since is not None and (node == self._place.number or any(link.node == node for link in self._told)):
                self._since[node] = since
                self._place.present.add(node)
            if isinstance(error, CommitRefused | EngineError | ShardLost):
                raise PeerRefused(str(error)) from error
            raise

    async def fill(self, node: int) -> None:
        """Give a node that was restarted its cells again; return when it has them open. PeerRefused."""
        try:
            async with asyncio.timeout(ABSENT_S):
                while node not in self._place.present:
                    self._came.clear()
                    await self._came.wait()
            await self._node.cell.current.others.between.fill(node)
        except TimeoutError:
            raise PeerRefused("it is not linked to the first one") from None
        except (BundleRefused, CommitRefused, EngineError, ShardLost) as refused:
            raise PeerRefused(str(refused)) from refused

    def opened(self, link: PeerLink) -> None:
        self._ends[link] = []
        log.info("node %d is linked", link.node)

    def noted(self, link: PeerLink, payload: bytes) -> None:
        method, head, _ = decode_peer_call(payload)
        if method not in (PeerMethod.CONFIRM, PeerMethod.STATE, PeerMethod.ENDS):
            raise LinkBroken(f"a note {method.name} came from node {link.node}")
        if link is not self._link_of(link.node):
            return  # what was late on an earlier link of the node says nothing of now
        if method is not PeerMethod.CONFIRM:
            self._take_report(link.node, method, head)
            return
        self._forget(link.node)
        # It may name a cell that it was to leave a moment ago: that counts no more.
        found = {cell: tablets for cell, tablets in decode_tablets(head).items() if self._home(cell) == link.node}
        self._place.elsewhere.update(found)
        self._place.changed.set()
        self.copies.follow()

    def _take_report(self, node: int, method: PeerMethod, head: Any) -> None:
        """Take a report of a node (`reports.py`). LinkBroken."""
        try:
            if method is PeerMethod.STATE:
                self._states[node] = NodeState.decode(head)
            else:
                take_ends(self._node.cell.current.topics, PartitionEnd.decode_all(head))
        except ValueError as bad:
            raise LinkBroken(str(bad)) from bad

    async def answer(self, link: PeerLink, payload: bytes) -> bytes:
        """Answer another node. PeerRefused."""
        try:
            method, head, body = decode_peer_call(payload)
            if method is PeerMethod.KAFKA:
                return await answer_forwarded(self._node, self._dispatcher, head, body)
            if method is PeerMethod.CONFIRM:
                numbers = {name: changes.number for name, changes in self._logs().items()}
                return encode_peer_call(method, numbers)
            if method is PeerMethod.FOLLOW:
                await self._begin_following(link, head)
                return encode_peer_call(method, None)
            if method is PeerMethod.CELL_READY:
                await self._note_ready(head)
                return encode_peer_call(method, None)
            if method is PeerMethod.TIMESTAMPS:
                return encode_peer_call(method, await self._give_timestamps(head))
            if method in COMMIT_STEPS:
                return await self._place.ways.answer(self._node.cell.current.commits, method, head, body)
            if method is PeerMethod.ADMIT:
                producers = self._node.cell.current.transactional_producers
                return encode_peer_call(method, await answer_admission(producers, head))
        except LinkBroken as broken:
            raise PeerRefused(str(broken)) from broken
        raise PeerRefused(f"a request {method.name} came to the first node")

    def closed(self, link: PeerLink, why: str) -> None:
        for end in self._ends.pop(link, ()):
            end()
        self._told.pop(link, None)
        if not any(other.node == link.node for other in self._ends):
            self._forget(link.node)
            self._place.present.discard(link.node)
            self._since.pop(link.node, None)
            self._states.pop(link.node, None)
            self._gone[link.node] = self._node.loop.time() + self._allowed_s
        self._place.changed.set()
        self._left.set()
        self.copies.follow()
        log.warning("the link of node %d closed: %s", link.node, why)

    def _forget(self, node: int) -> None:
        for cell in [cell for cell in self._place.elsewhere if self._home(cell) == node]:
            del self._place.elsewhere[cell]

    def _link_to(self, cell: CellId) -> PeerLink | None:
        """Return the open link to the node that a cell is home at, the latest of several."""
        return self._link_of(self._home(cell))

    def _link_of(self, node: int | None) -> PeerLink | None:
        return next((link for link in reversed(self._ends) if link.node == node and link.is_open), None)

    def _way_to(self, tablet_id: TabletId) -> Way | None:
        """Return the way to the node that runs a tablet; None: this one does, or no node that is linked."""
        cell = self._node.cell.current.cells.elsewhere_of(tablet_id)
        link = None if cell is None else self._link_to(cell)
        return None if link is None else Way(link.node, link.ask)

    def _home(self, cell: CellId) -> int | None:
        return self._node.cell.current.others.node_of(cell)

    def _logs(self) -> dict[str, ChangeLog]:
        opened = self._node.cell.current
        return {SCHEME: opened.scheme.changes, HIVE: opened.hive.changes}

    async def _begin_following(self, link: PeerLink, numbers: Any) -> None:
        """Send scheme and hive from the numbers on that a node has, and each change from now on. LinkBroken."""
        if not isinstance(numbers, dict):
            raise LinkBroken("a node follows without numbers")
        ends = self._ends.get(link)
        if ends is None:
            raise LinkBroken("the link has closed")
        for name, changes in self._logs().items():
            following = _MirrorFeed(link, name)
            ends.append(changes.follow(following.take))
            await following.catch_up(changes, numbers.get(name))
        if link in self._ends:
            self._told[link] = {}
            self._gone.pop(link.node, None)
            self._place.present.add(link.node)
            self._came.set()
            self._since.setdefault(link.node, self._node.loop.time())
            self._tell(link, running_tablets(self._node.cell.current, with_system=True), is_all=True)

    def _tell(self, link: PeerLink, own: CellTablets, *, is_all: bool = False) -> None:
        """Have a node know what has changed since the last time; `own`: tablets of this node; `is_all`: the other one
        forgets what it knew."""
        known = self._told[link]
        now: dict[CellId, Mapping[TabletId, int]] = {
            **own,
            **{
                cell: tablets for cell, tablets in self._place.elsewhere.items()
                if self._home(cell) != link.node
            },
        }
        changed = {cell: tablets for cell, tablets in now.items() if known.get(cell) != tablets}
        closed = [cell for cell in known if cell not in now]
        if changed or closed or is_all:
            self._told[link] = now
            head = {"all": is_all, "running": encode_tablets(changed), "closed": closed}
            link.note(encode_peer_call(PeerMethod.RUNNING, head))

    async def _give_timestamps(self, after: Any) -> tuple[int, int]:
        """Return a block of commit timestamps. PeerRefused."""
        timestamps = self._node.cell.current.topics.share.timestamps
        if not isinstance(after, int) or not 0 <= after < TIMESTAMP_MAX or not isinstance(timestamps, NodeTimestamps):
            raise PeerRefused(f"there is no block of timestamps behind {after!r}")
        try:
            return await timestamps.give_block(self._node.clock, after)
        except CommitRefused as refused:
            raise PeerRefused(str(refused)) from refused

    async def _note_ready(self, number: Any) -> None:
        hive = self._node.cell.current.hive
        record = hive.cells.get(CellId(number)) if isinstance(number, int) else None
        if record is None:
            raise PeerRefused(f"there is no cell {number!r}")
        if record.state is CellState.READY:
            return
        try:
            await hive.set_state(record.cell, CellState.READY)
        except (BundleRefused, CommitRefused, ShardLost) as refused:
            raise PeerRefused(str(refused)) from refused


class _MirrorFeed:
    """One node's following of the scheme or the hive: changes that come while it catches up wait."""

    def __init__(self, link: PeerLink, name: str) -> None:
        self._link = link
        self._name = name
        self._waiting: list[NumberedChange] | None = []

    def take(self, change: NumberedChange) -> None:
        """Send a change, or keep it until the node has caught up."""
        if self._waiting is None:
            self._send(PeerMethod.CHANGE, change.encode())
        else:
            self._waiting.append(change)

    async def catch_up(self, changes: ChangeLog, number: Any) -> None:
        """Send what lies behind a number; a snapshot where that is unknown here, a portion a turn of the loop."""
        behind = changes.since(number) if isinstance(number, int) else None
        if behind is None:
            for portion in changes.snapshot().portions():
                self._send(PeerMethod.PORTION, portion.encode())
                await asyncio.sleep(0)
        for change in behind or ():
            self._send(PeerMethod.CHANGE, change.encode())
        waiting, self._waiting = self._waiting, None
        for change in waiting or ():
            self._send(PeerMethod.CHANGE, change.encode())

    def _send(self, method: PeerMethod, body: bytes) -> None:
        self._link.note(encode_peer_call(method, self._name, body))
