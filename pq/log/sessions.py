"""Sessions of those who insert rows into a table, so that a batch that was taken is not taken again (E.13).

    last sequence       batch       verdict
    none, or below s    s           append
    s or above          s           taken already
    any, of a later owner           fenced

Unlike Kafka's producers they have names, and sequences that leave numbers out. Of one session each partition that took
rows remembers its own last batch; the session's last sequence is the greatest of them.

Sessions of a queue's producers have an epoch besides, which fences earlier owners of the session: theirs is the
greatest of all partitions too. Their names have a NUL between producer and session, which other sessions' never have.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from struct import Struct
from typing import NamedTuple

from pqbroker.pq.log.producers import DELETIONS_MAX
from pqbroker.pq.log.staged_rows import Total
from pqbroker.storage.unreadable import check_version

SESSION_NAME_BYTES_MAX = 255
"""Bytes of a session's name in UTF-8 at most."""
_STATE = Struct(">Bqqqq")
_WITH_TOTAL = Struct(">BqqqqQ16s")
_VERSION = 1
_VERSION_WITHOUT_PLACE = 2
"""The stored form of a batch without a place; earlier versions refuse it."""
_VERSION_WITH_TOTAL = 3
"""The stored form of a batch whose rows were staged, with a place or without one; earlier versions refuse it."""
_OF_PRODUCER = Struct(">BqqqqqI")
_VERSION_OF_PRODUCER = 4
"""The stored form of a session of a queue's producer, with its epoch and the user's document behind it; earlier
versions refuse it."""
NO_SEQUENCE = -1
"""The last sequence of a producer's session that has not pushed a row yet."""
_NUL = "\0"


class ProducerState(NamedTuple):
    """A queue producer's hold on its session: `epoch` grows with each owner, `user_meta` is a JSON document."""

    epoch: int
    user_meta: bytes = b"null"


class Fence(NamedTuple):
    """The identity of a batch of rows. `producer`: the state of the session of a queue's producer."""

    session: str
    sequence: int
    producer: ProducerState | None = None


def producer_session(producer: str, session: str) -> str:
    """Return the name under which a session of a queue's producer is kept."""
    return f"{producer}{_NUL}{session}"


def read_producer_session(name: str) -> tuple[str, str] | None:
    """Return producer and session of a name; None: it is no queue producer's."""
    producer, separator, session = name.partition(_NUL)
    return (producer, session) if separator else None


class SessionBatch(NamedTuple):
    """The last batch of a session in one partition: its sequence, when it came, where its rows are.

    `row_count` is 0 where gluing tablets left the rows no single place: they were trimmed, or stand in two stretches.
    `total`: of all rows of a batch that was staged, in whatever partitions; None for a batch that came in one request.
    `producer`: the queue producer's state whose session it is; such a batch has no `total`.
    """

    sequence: int
    written_ms: int
    base_offset: int
    row_count: int
    total: Total | None = None
    producer: ProducerState | None = None

    def encode(self) -> bytes:
        if self.producer is not None:
            epoch, meta = self.producer
            return _OF_PRODUCER.pack(_VERSION_OF_PRODUCER, *self[:4], epoch, len(meta)) + meta
        if self.total is not None:
            count, digest = self.total
            return _WITH_TOTAL.pack(_VERSION_WITH_TOTAL, *self[:4], count, digest.to_bytes(16, "big"))
        return _STATE.pack(_VERSION if self.row_count else _VERSION_WITHOUT_PLACE, *self[:4])

    @classmethod
    def decode(cls, stored: bytes) -> "SessionBatch":
        """ValueError for what no `encode` of this version writes."""
        if stored[:1] == bytes((_VERSION_WITH_TOTAL,)):
            return cls._decode_with_total(stored)
        if stored[:1] == bytes((_VERSION_OF_PRODUCER,)):
            return cls._decode_of_producer(stored)
        has_place = stored[:1] != bytes((_VERSION_WITHOUT_PLACE,))
        check_version(stored, _VERSION if has_place else _VERSION_WITHOUT_PLACE)
        if len(stored) != _STATE.size:
            raise ValueError(f"it has {len(stored)} bytes")
        _, sequence, written_ms, base_offset, row_count = _STATE.unpack(stored)
        session = cls(sequence, written_ms, base_offset, row_count)
        if min(session.sequence, session.base_offset, session.row_count) < 0 or has_place != bool(session.row_count):
            raise ValueError(f"it is {session}")
        return session

    @classmethod
    def _decode_with_total(cls, stored: bytes) -> "SessionBatch":
        if len(stored) != _WITH_TOTAL.size:
            raise ValueError(f"it has {len(stored)} bytes")
        _, sequence, written_ms, base_offset, row_count, count, digest = _WITH_TOTAL.unpack(stored)
        total = Total(count, int.from_bytes(digest, "big"))
        if min(sequence, base_offset, row_count) < 0:
            raise ValueError(f"it is of batch {sequence}, {row_count} rows from {base_offset} on")
        return cls(sequence, written_ms, base_offset, row_count, total)

    @classmethod
    def _decode_of_producer(cls, stored: bytes) -> "SessionBatch":
        if len(stored) < _OF_PRODUCER.size:
            raise ValueError(f"it has {len(stored)} bytes")
        _, sequence, written_ms, base_offset, row_count, epoch, meta_bytes = _OF_PRODUCER.unpack_from(stored)
        meta = stored[_OF_PRODUCER.size :]
        if len(meta) != meta_bytes or sequence < NO_SEQUENCE or min(base_offset, row_count, epoch) < 0:
            raise ValueError(
                f"it is of row {sequence} in epoch {epoch}, {row_count} rows from {base_offset} on, and has "
                f"{len(meta)} of {meta_bytes} bytes of the user's"
            )
        return cls(sequence, written_ms, base_offset, row_count, producer=ProducerState(epoch, meta))

    def is_over(self, start_offset: int, now_ms: int, kept_ms: int) -> bool:
        """Return True if the session may be forgotten: no row of the batch remains, and it was idle for `kept_ms`."""
        return self.base_offset + self.row_count <= start_offset and self.written_ms + kept_ms <= now_ms

    def moved(self, shift: int, first_offset: int) -> "SessionBatch":
        """The batch where its rows from `first_offset` on stand `shift` further; rows before that were trimmed."""
        end = self.base_offset + self.row_count
        first = max(self.base_offset, first_offset)
        if first >= end:
            return self._replace(base_offset=0, row_count=0)
        return self._replace(base_offset=first + shift, row_count=end - first)


def comes_late(sequence: int, producer: ProducerState | None, known: SessionBatch | None) -> bool:
    """Return True for rows of a session whose partition has them already, or later ones, or a later owner: their sender
    looked the session up before another one wrote."""
    if known is None:
        return False
    if producer is not None and known.producer is not None and known.producer.epoch > producer.epoch:
        return True
    return known.sequence >= sequence


def glued(batch: SessionBatch, known: SessionBatch | None) -> SessionBatch | None:
    """Return what to remember of a session after `batch` joins what a partition knows of it; None if that stays.

    One batch in two stretches has no single place: it is remembered without one, until the later rows are gone too.
    Of a producer's session the later owner is remembered, whichever batch is.
    """
    joined = _glued(batch, known)
    owners = [one.producer for one in (batch, known) if one is not None and one.producer is not None]
    latest = max(owners, key=_epoch, default=None)
    remembered = known if joined is None else joined
    if remembered is None or remembered.producer == latest:
        return joined
    return remembered._replace(producer=latest)


def _epoch(producer: ProducerState) -> int:
    return producer.epoch


def _glued(batch: SessionBatch, known: SessionBatch | None) -> SessionBatch | None:
    if known is None or batch.sequence > known.sequence:
        return batch
    if batch.sequence < known.sequence or not batch.row_count:
        return None
    if not known.row_count:
        return batch
    end = max(batch.base_offset + batch.row_count, known.base_offset + known.row_count)
    return known._replace(written_ms=max(batch.written_ms, known.written_ms), base_offset=end, row_count=0)


class Sessions:
    """The sessions of one partition, in the order of their last writes: the first ones are forgotten first."""

    __slots__ = ("_by_name",)

    def __init__(self, sessions: Iterable[tuple[str, SessionBatch]] = ()) -> None:
        self._by_name: dict[str, SessionBatch] = dict(sorted(sessions, key=_age))

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[tuple[str, SessionBatch]]:
        return iter(self._by_name.items())

    def get(self, name: str) -> SessionBatch | None:
        return self._by_name.get(name)

    def take(self, sessions: Mapping[str, SessionBatch]) -> None:
        """Take the states of sessions that have written."""
        for name, session in sessions.items():
            self._by_name.pop(name, None)
            self._by_name[name] = session

    def expired(self, start_offset: int, now_ms: int, kept_ms: int) -> list[str]:
        """Sessions to forget: no row of their last batch remains, and they were idle for `kept_ms`."""
        found = []
        for name, session in self._by_name.items():
            if not session.is_over(start_offset, now_ms, kept_ms):
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


def _age(session: tuple[str, SessionBatch]) -> tuple[int, int]:
    """The order of writing; gluing tablets gives earlier batches later offsets."""
    return session[1].written_ms, session[1].base_offset
