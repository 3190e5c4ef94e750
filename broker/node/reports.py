"""Reports of a node to the first one: what is wrong with it, its figures, and ends of partitions in which groups have
offsets, for their lag. The first node has the offsets (`partition_copies.py`), and not the ends.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.other_nodes import NodeState
from pqbroker.broker.node.figures import read_figures
from pqbroker.broker.node.parts import Node
from pqbroker.broker.peers.peer_methods import PeerMethod, encode_peer_call
from pqbroker.pq.serving.topics import Topics

REPORT_S: Final = 0.5
"""Seconds between looks for what is to be reported: each door of the first node says what is wrong within a second or
two."""
FIGURES_S: Final = 1.0
"""Seconds between reports of figures alone: `/v1/events` has them every second."""
ENDS_AT_ONCE: Final = 1000
"""Ends in one note."""
_LOOKED_AT_ONCE: Final = 200
"""Partitions that are looked at before the loop's other work has its turn."""


class PartitionEnd(NamedTuple):
    """The end of a partition in which a group has an offset."""

    topic_id: bytes
    partition: int
    end: int

    def encode(self) -> Any:
        return [self.topic_id.hex(), self.partition, self.end]

    @classmethod
    def decode_all(cls, told: Any) -> "list[PartitionEnd]":
        """ValueError for what is none."""
        try:
            return [cls(bytes.fromhex(topic_id), int(index), int(end)) for topic_id, index, end in told]
        except (TypeError, ValueError) as bad:
            raise ValueError(f"ends of partitions were expected: {bad}") from None


class NodeReports:
    """Reports of one node. `note` sends a note, if there is a link; False: there is none."""

    def __init__(self, node: Node, note: Callable[[bytes], bool]) -> None:
        self._node = node
        self._note = note
        self._conditions: Sequence[Any] = ()
        self._figures_due_s = 0.0
        self._told: dict[tuple[bytes, int], int] = {}
        self._ends_are_of: tuple[Topics, int, int] | None = None
        """Topics, and numbers of requests to their tablets and of starts of these at the look at the ends before; None:
        there was none."""
        self._ends_stand = False
        """True: nothing had changed at that look, so that what it found is all."""

    async def run(self) -> None:
        """Report for as long as this runs."""
        while True:
            self._report_state()
            await self._report_ends()
            await asyncio.sleep(REPORT_S)

    def forget(self) -> None:
        """Report everything again: the first node does not know it any more."""
        self._told.clear()
        self._figures_due_s, self._ends_are_of = 0.0, None

    def _report_state(self) -> None:
        node, now_s = self._node, self._node.loop.time()
        conditions = [condition.document() for condition in node.health.found]
        if conditions == self._conditions and now_s < self._figures_due_s:
            return
        figures = read_figures(node.metrics, node.cell.current, with_system=False)
        if self._note(encode_peer_call(PeerMethod.STATE, NodeState(conditions, figures).encode())):
            self._conditions, self._figures_due_s = conditions, now_s + FIGURES_S
        else:
            self.forget()

    async def _report_ends(self) -> None:
        """Report ends that have changed. No end changes without a request to a tablet or its start, and there may be
        thousands; one that is just counted may move its end after this look, so the next one looks too."""
        topics = self._node.cell.current.topics
        at = (topics, topics.memory.key_values.requests.count, topics.memory.starts.count)
        is_same = at == self._ends_are_of
        if is_same and self._ends_stand:
            return
        self._ends_are_of, self._ends_stand = at, is_same
        found = await self._node.turns.finish(_ends(topics))
        changed = [one for one in found if self._told.get(one[:2]) != one.end]
        self._told = {one[:2]: one.end for one in found}
        for start in range(0, len(changed), ENDS_AT_ONCE):
            some = [one.encode() for one in changed[start : start + ENDS_AT_ONCE]]
            self._note(encode_peer_call(PeerMethod.ENDS, some))


def _ends(topics: Topics) -> Generator[None, None, list[PartitionEnd]]:
    found = []
    for number, (name, index) in enumerate(topics.offsets.places(), 1):
        topic = topics.get(name)
        if topic is not None and index < len(topic.partitions) and topic.partitions[index].is_loaded:
            found.append(PartitionEnd(topic.record.topic_id, index, topic.partitions[index].end_offset))
        if number % _LOOKED_AT_ONCE == 0:
            yield
    return found


def take_ends(topics: Topics, ends: Sequence[PartitionEnd]) -> None:
    """Have the lag of groups go by these ends, where their offsets are known."""
    for one in ends:
        topic = topics.by_id(one.topic_id)
        if topic is not None and one.partition < len(topic.partitions):
            topics.offsets.take_end(topic.partitions[one.partition], one.end)
