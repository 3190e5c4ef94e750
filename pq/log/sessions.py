"""Sessions of those who insert rows into a table, so that a batch that was taken is not taken again (E.13).

    last sequence       batch       verdict
    none, or below s    s           append
    s or above          s           taken already

Unlike Kafka's producers they have names, and sequences that leave numbers out. Of one session each partition that took
rows remembers its own last batch; the session's last sequence is the greatest of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from struct import Struct
from typing import NamedTuple

from pqbroker.pq.log.producers import DELETIONS_MAX
from pqbroker.storage.unreadable import check_version

NAME_BYTES_MAX = 255
"""Of a name in UTF-8."""
_STATE = Struct(">Bqqqq")
_VERSION = 1


class Fence(NamedTuple):
    """What a batch of rows is known by."""

    session: str
    sequence: int


class SessionBatch(NamedTuple):
    """The last batch of a session in one partition: its sequence, when it came, where its rows are."""

    sequence: int
    written_ms: int
    base_offset: int
    row_count: int

    def encode(self) -> bytes:
        return _STATE.pack(_VERSION, *self)

    @classmethod
    def decode(cls, stored: bytes) -> "SessionBatch":
        """ValueError for what no `encode` of this version writes."""
        check_version(stored, _VERSION)
        if len(stored) != _STATE.size:
            raise ValueError(f"it has {len(stored)} bytes")
        session = cls(*_STATE.unpack(stored)[1:])
        if session.sequence < 0 or session.base_offset < 0 or session.row_count < 1:
            raise ValueError(f"it is {session}")
        return session


class Sessions:
    """Those of one partition, in the order of their last writes: those to forget stand first."""

    __slots__ = ("_by_name",)

    def __init__(self, sessions: Iterable[tuple[str, SessionBatch]] = ()) -> None:
        self._by_name: dict[str, SessionBatch] = dict(sorted(sessions, key=lambda item: item[1].base_offset))

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[tuple[str, SessionBatch]]:
        return iter(self._by_name.items())

    def get(self, name: str) -> SessionBatch | None:
        return self._by_name.get(name)

    def take(self, sessions: Mapping[str, SessionBatch]) -> None:
        """These have written."""
        for name, session in sessions.items():
            self._by_name.pop(name, None)
            self._by_name[name] = session

    def expired(self, start_offset: int, now_ms: int, kept_ms: int) -> list[str]:
        """Sessions to forget: no row of their last batch remains, and they were idle for `kept_ms`."""
        found = []
        for name, session in self._by_name.items():
            if session.base_offset + session.row_count > start_offset or session.written_ms + kept_ms > now_ms:
                break
            found.append(name)
            if len(found) == DELETIONS_MAX:
                break
        return found

    def displaced(self, name: str, count_max: int) -> list[str]:
        """The oldest to forget, so that one more, `name`, keeps to the limit."""
        over = len(self._by_name) + (name not in self._by_name) - count_max
        others = (other for other in self._by_name if other != name)
        return list(islice(others, min(max(over, 0), DELETIONS_MAX)))

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            del self._by_name[name]
