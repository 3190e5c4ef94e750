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
"""Seconds between reports, so that each door of the first node says what is wrong within a second or two."""
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
        self._told: dict[tuple[bytes, int], int] = {}

    async def run(self) -> None:
        """Report for as long as this runs."""
        while True:
            node = self._node
            figures = read_figures(node.metrics, node.cell.current, with_system=False)
            state = NodeState(node.health.document(node)["conditions"], figures)
            if not self._note(encode_peer_call(PeerMethod.STATE, state.encode())):
                self.forget()
            else:
                await self._report_ends()
            await asyncio.sleep(REPORT_S)

    def forget(self) -> None:
        """Report all ends again: the first node does not know them any more."""
        self._told.clear()

    async def _report_ends(self) -> None:
        found = await self._node.turns.finish(_ends(self._node.cell.current.topics))
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
