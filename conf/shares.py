"""Shares of a limit: who holds how much of a pool, by key, who may take more of it, and who gives way. Pure.

The last eighth of a pool is its reserve. A holder takes from it only while it holds less than `first`, so that one
alone may have all but the reserve, and one that comes late still gets its first part. What can be taken back goes from
the largest holder. A key is most often an address (`holder_of`).
"""

from collections.abc import Hashable
from ipaddress import IPv6Address
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

RESERVE_PART: Final = 8
"""The reserve is one RESERVE_PART-th of a pool."""
FIRST_PART: Final = 64
"""A holder's first part is one FIRST_PART-th of a pool that gives no other."""
_BY_CONNECTION: Final = ("127.0.0.1", "::1")
"""Addresses that all clients of one machine have together: each of their connections is a holder."""
_MAPPED: Final = "::ffff:"
"""An IPv4 address behind it came to a socket of both families."""


def holder_of(host: str, port: int) -> str:
    """The key under which a client's connection counts: its address, of IPv6 the /64.

    The usual loopback addresses count by connection, since every client of the machine comes from there.
    """
    if host in _BY_CONNECTION:
        return f"{host}#{port}"
    if ":" not in host:
        return host
    if host.startswith(_MAPPED) and "." in host:
        return holder_of(host[len(_MAPPED) :], port)
    network = int(IPv6Address(host.partition("%")[0])) >> 64 << 64
    return f"{IPv6Address(network)}/64"


def address_of(holder: str) -> str:
    """The address of a holder, without the connection: for what outlives that."""
    return holder.partition("#")[0]


def reserve_of(size: int) -> int:
    """The part of a pool that only holders of little may take."""
    return size // RESERVE_PART


def first_of(size: int, at_least: int = 1) -> int:
    """The first part of a holder, which it may take from the reserve; `at_least`, if the reserve has so much."""
    return max(min(max(size // FIRST_PART, at_least), reserve_of(size)), 1)


def may_take(size: int, total: int, held: int, wanted: int = 1, *, first: int = 0) -> bool:
    """Return True if a holder of `held` may take `wanted` more from a pool of `size`, of which `total` is taken."""
    after = total + wanted
    if after <= size - reserve_of(size):
        return True
    return after <= size and held + wanted <= (first or first_of(size))


class Shares(Generic[Key]):
    """The holdings of each key in one pool. Keys that hold nothing are not kept."""

    __slots__ = ("held", "total")

    def __init__(self) -> None:
        self.held: dict[Key, int] = {}
        self.total = 0

    def take(self, key: Key, count: int = 1) -> None:
        """Count what the key takes; whether it may, `may_take` says."""
        self.held[key] = self.held.get(key, 0) + count
        self.total += count

    def give_back(self, key: Key, count: int = 1) -> None:
        left = self.held[key] - count
        assert left >= 0, (key, left)
        self.total -= count
        if left:
            self.held[key] = left
        else:
            del self.held[key]

    def of(self, key: Key) -> int:
        return self.held.get(key, 0)

    def may_take(self, size: int, key: Key, wanted: int = 1, *, first: int = 0) -> bool:
        """Return True if the key may take `wanted` more from a pool of `size`."""
        return may_take(size, self.total, self.of(key), wanted, first=first)

    def largest(self) -> frozenset[Key]:
        """The keys that hold most: they give way first."""
        most = max(self.held.values(), default=0)
        return frozenset(key for key, count in self.held.items() if count == most)
