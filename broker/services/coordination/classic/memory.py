"""Memory of groups, so that a node can limit it: bytes that clients give, and a part that everyone takes."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pqbroker.conf.shares import Shares, address_of, first_of, holder_of

if TYPE_CHECKING:
    from pqbroker.storage.tablets.coordinator_rows import MemberProtocol

GROUP_BYTES = 2048
MEMBER_BYTES = 512
PENDING_BYTES = 512
PROTOCOL_BYTES = 128
ASSIGNMENT_BYTES = 64
FIRST_BYTES = 1 << 20
"""The first part of an address, at least: a member's metadata."""


class GroupMemory:
    """Bytes of all groups of a node."""

    __slots__ = ("bytes_max", "shares")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.shares = Shares[str]()
        """Shares by the address that made the group."""

    @property
    def taken(self) -> int:
        """Bytes of all groups."""
        return self.shares.total

    def has_room(self, size: int, payer: str) -> bool:
        """Return True if groups of an address may take so much more; less than before they always may."""
        first = first_of(self.bytes_max, FIRST_BYTES)
        return size <= 0 or self.shares.may_take(self.bytes_max, payer, size, first=first)


def payer_of(client_host: str) -> str:
    """The address under which a group counts that a client made."""
    try:
        return address_of(holder_of(client_host, 0))
    except ValueError:  # no address: it comes from a row on disk
        return client_host


def group_bytes(group_id: str) -> int:
    return GROUP_BYTES + text_bytes(group_id)


def pending_bytes(member_id: str) -> int:
    return PENDING_BYTES + text_bytes(member_id)


def member_bytes(texts: Iterable[str | None], protocols: "Iterable[MemberProtocol]") -> int:
    """Return the bytes of a member without its assignment."""
    size = MEMBER_BYTES + sum(map(text_bytes, texts))
    return size + sum(PROTOCOL_BYTES + text_bytes(offered.name) + len(offered.metadata) for offered in protocols)


def assignment_bytes(assignments: Mapping[str, bytes]) -> int:
    return sum(ASSIGNMENT_BYTES + text_bytes(name) + len(data) for name, data in assignments.items())


def text_bytes(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
