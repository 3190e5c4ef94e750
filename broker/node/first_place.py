"""The first node's side of the peer link: it answers what others forward, and sends scheme and hive to them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.forwarding import answer_forwarded
from pqbroker.broker.node.admissions import answer_admission
from pqbroker.broker.node.mirrored_rows import HIVE, SCHEME
from pqbroker.broker.node.node_place import NodePlace
from pqbroker.broker.node.partition_copies import PartitionCopies
from pqbroker.broker.node.parts import Node
from pqbroker.broker.node.running_tablets import (
    RUNNING_LOOK_S,
    CellTablets,
    decode_tablets,
    encode_tablets,
    running_tablets,
)
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerDoor, PeerLink, PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.serving.timestamps import NodeTimestamps
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.hive import CellState
from pqbroker.storage.bundles.placement import home_of
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.numbered_changes import ChangeLog, NumberedChange

log = logging.getLogger(__name__)


class FirstPlace:
    """The door, and what is known of the nodes that have come to it."""

    def __init__(self, place: NodePlace, node: Node, dispatcher: Dispatcher) -> None:
        self._place = place
        self._node = node
        self._dispatcher = dispatcher
        self._door = PeerDoor(place.terms, self, links_max=2 * place.count)
        self._ends: dict[PeerLink, list[Callable[[], None]]] = {}
        """Links, each with what ends its following."""
        self._told: dict[PeerLink, dict[CellId, Mapping[TabletId, int]]] = {}
        """Links that follow, each with what its node knows of tablets that others run."""
        self.copies = PartitionCopies(
            lambda: self._node.cell.current, place.elsewhere, self._link_to,
            node.settings.peer_request_timeout_ms / 1000,
        )  # fmt: skip

    async def start(self) -> None:
        """Open the door. OSError."""
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

    def begin_again(self) -> None:
        """Have all nodes follow the scheme and the hive of the system cell's new opening."""
        for link in list(self._ends):
            link.close("the system cell was opened again")

    def opened(self, link: PeerLink) -> None:
        self._ends[link] = []
        log.info("node %d is linked", link.node)

    def noted(self, link: PeerLink, payload: bytes) -> None:
        method, head, _ = decode_peer_call(payload)
        if method is not PeerMethod.CONFIRM:
            raise LinkBroken(f"a note {method.name} came from node {link.node}")
        self._forget(link.node)
        found = decode_tablets(head)
        strange = [cell for cell in found if home_of(cell, self._place.count) != link.node]
        if strange:
            raise LinkBroken(f"node {link.node} says that it runs cell {strange[0]}, which is not its own")
        self._place.elsewhere.update(found)
        self.copies.follow()

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
        self.copies.follow()
        log.warning("the link of node %d closed: %s", link.node, why)

    def _forget(self, node: int) -> None:
        for cell in [cell for cell in self._place.elsewhere if home_of(cell, self._place.count) == node]:
            del self._place.elsewhere[cell]

    def _link_to(self, cell: CellId) -> PeerLink | None:
        """Return the open link to the node that a cell is home at, the latest of several."""
        node = home_of(cell, self._place.count)
        return next((link for link in reversed(self._ends) if link.node == node and link.is_open), None)

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
            self._tell(link, running_tablets(self._node.cell.current, with_system=True), is_all=True)

    def _tell(self, link: PeerLink, own: CellTablets, *, is_all: bool = False) -> None:
        """Have a node know what has changed since the last time; `own`: tablets of this node; `is_all`: the other one
        forgets what it knew."""
        known = self._told[link]
        now: dict[CellId, Mapping[TabletId, int]] = {
            **own,
            **{
                cell: tablets for cell, tablets in self._place.elsewhere.items()
                if home_of(cell, self._place.count) != link.node
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
