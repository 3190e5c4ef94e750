"""One group's use of the memory that a node gives to all groups."""

from collections.abc import Mapping
from typing import Protocol

from pqbroker.broker.services.coordination.classic.memory import GroupMemory, assignment_bytes


class CountedMember(Protocol):
    """A member, of any protocol."""

    counted_bytes: int
    """Bytes that its group counts for it, without its assignment."""

    @property
    def metadata_bytes(self) -> int:
        """Return the bytes that it takes without its assignment."""


class Usage:
    """Bytes, as `memory.py` counts them; each change is counted for the node too."""

    __slots__ = ("_node", "assignment_bytes", "metadata_bytes", "payer", "taken")

    def __init__(self, node: GroupMemory, payer: str) -> None:
        """`payer`: the address that it counts for."""
        self._node = node
        self.payer = payer
        self.metadata_bytes = 0
        """Bytes of all members, without their assignments."""
        self.assignment_bytes = 0
        self.taken = 0
        """Bytes of the group in all."""

    def add(self, size: int) -> None:
        """Take more; less, when `size` is negative."""
        self.taken += size
        self._count(size)

    def count_member(self, member: CountedMember) -> None:
        """Count what a member takes from now on."""
        size = member.metadata_bytes
        more, member.counted_bytes = size - member.counted_bytes, size
        self._add_metadata(more)

    def forget_member(self, member: CountedMember) -> None:
        self._add_metadata(-member.counted_bytes)

    def count_assignments(self, assignments: Mapping[str, bytes]) -> None:
        """Count the assignments that the members have from now on."""
        size = assignment_bytes(assignments)
        self.add(size - self.assignment_bytes)
        self.assignment_bytes = size

    def release(self) -> None:
        """The node counts nothing for this group from now on; `retake` undoes it."""
        self._count(-self.taken)

    def retake(self) -> None:
        self._count(self.taken)

    def has_room(self, size: int) -> bool:
        """Return True if the node has room for so much more of this group."""
        return self._node.has_room(size, self.payer)

    def _count(self, size: int) -> None:
        shares = self._node.shares
        if size > 0:
            shares.take(self.payer, size)
        elif size < 0:
            shares.give_back(self.payer, -size)

    def _add_metadata(self, size: int) -> None:
        self.metadata_bytes += size
        self.add(size)
