"""The layout of a Fetch lane's requests: they are compared and cut, not decoded."""

from functools import cache
from struct import Struct, calcsize
from typing import Final

from pqbroker.broker.kafka.apis.fetch_sessions import Asked
from pqbroker.broker.kafka.lanes.fetch_answers import FETCH_KEY
from pqbroker.broker.kafka.lanes.words import Words
from pqbroker.protocol.layout import codes, count_bytes, encoded
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest
from pqbroker.protocol.schema import is_flexible

LANE_PARTITIONS_MAX: Final = 100
"""Partitions that a request in a lane names at most."""
EPOCH_BYTES: Final = 4

_COUNT = Struct(">i").unpack_from
_COUNT_BYTES = 4
_ASKED = ("partition", "current_leader_epoch", "fetch_offset", "partition_max_bytes")
"""Fields that say what is asked of a partition; see `Asked`."""


class FetchForm:
    """The layout of a lane's requests."""

    __slots__ = (
        "_count_at", "_empty_bytes", "_entries_at", "_entry", "_is_flexible", "_name", "_none", "_tail", "bytes_max",
        "said", "words",
    )  # fmt: skip

    def __init__(self, words: Words, name: bytes, none: bytes, entry: Struct) -> None:
        """`name`: one topic and its name; `none`: no topics, and what follows them; `entry`: one partition."""
        flexible = self._is_flexible = words.is_flexible
        self.words = words
        self.said = (words, name, none)
        self._name = name
        self._none = none
        self._empty_bytes = EPOCH_BYTES + len(none)
        self._count_at = EPOCH_BYTES + len(name)
        self._entries_at = self._count_at + (1 if flexible else _COUNT_BYTES)
        tail = none[len(count_bytes(0, flexible=flexible)) :]
        self._tail = b"\0" + tail if flexible else tail
        self._entry = entry
        self.bytes_max = words.end + self._entries_at + LANE_PARTITIONS_MAX * entry.size + len(self._tail)
        """A larger frame is another request."""

    def cut(self, rest: bytes) -> list[Asked] | None:
        """Return the partitions of a request that has these bytes from its session's epoch on, none for an empty one;
        None if it is any other request."""
        if len(rest) <= self._empty_bytes:
            return [] if rest[EPOCH_BYTES:] == self._none else None
        if not rest.startswith(self._name, EPOCH_BYTES) or not rest.endswith(self._tail):
            return None
        start, stop, entry = self._entries_at, len(rest) - len(self._tail), self._entry
        if start >= stop:
            return None
        count = rest[self._count_at] - 1 if self._is_flexible else _COUNT(rest, self._count_at)[0]
        if not 0 < count <= LANE_PARTITIONS_MAX or stop - start != count * entry.size:
            return None
        found = list(entry.iter_unpack(rest[start:stop]))
        if not self._is_flexible:
            return found
        if any(each[4] for each in found):  # tagged fields
            return None
        return [each[:4] for each in found]


def cut_empty(request: FetchRequest, version: int) -> tuple[bytes, bytes]:
    """Return the bytes of a request of these numbers that names no topics: up to its session's epoch, and behind it."""
    said = FetchRequest(
        max_wait_ms=request.max_wait_ms, min_bytes=request.min_bytes, max_bytes=request.max_bytes,
        isolation_level=request.isolation_level, session_id=request.session_id, rack_id=request.rack_id,
    )  # fmt: skip
    whole = encoded(said, version)
    epoch_at = calcsize(">" + codes(FetchRequest, version, until="session_epoch"))
    return whole[:epoch_at], whole[epoch_at + EPOCH_BYTES :]


@cache
def entry_layout(version: int) -> Struct:
    """Return the layout of a partition of a request, with a count of tagged fields in flexible versions."""
    tags = "B" if is_flexible(FETCH_KEY, version) else ""
    return Struct(f">{codes(FetchPartition, version, only=_ASKED)}{tags}")
