"""What groups take in memory, so that a node can limit it: bytes that clients give, and a part that everyone takes."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pqbroker.storage.tablets.coordinator_rows import MemberProtocol

GROUP_BYTES = 2048
MEMBER_BYTES = 512
PENDING_BYTES = 512
PROTOCOL_BYTES = 128
ASSIGNMENT_BYTES = 64


class GroupMemory:
    """Bytes of all groups of a node."""

    __slots__ = ("bytes_max", "taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0

    def has_room(self, size: int) -> bool:
        """Whether so much more may be taken; less than before always may."""
        return size <= 0 or self.taken + size <= self.bytes_max


def group_bytes(group_id: str) -> int:
    return GROUP_BYTES + text_bytes(group_id)


def pending_bytes(member_id: str) -> int:
    return PENDING_BYTES + text_bytes(member_id)


def member_bytes(texts: Iterable[str | None], protocols: "Iterable[MemberProtocol]") -> int:
    """Of a member without its assignment."""
    size = MEMBER_BYTES + sum(map(text_bytes, texts))
    return size + sum(PROTOCOL_BYTES + text_bytes(offered.name) + len(offered.metadata) for offered in protocols)


def assignment_bytes(assignments: Mapping[str, bytes]) -> int:
    return sum(ASSIGNMENT_BYTES + text_bytes(name) + len(data) for name, data in assignments.items())


def text_bytes(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
