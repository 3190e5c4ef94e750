"""Choice of the records to print among those read: filtered, as many as wanted, or the last of them by time."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pqbroker.cli.records.decoding import RecordDecoder
from pqbroker.cli.records.filters import Filter
from pqbroker.cli.records.formats import Form, ReadRecord


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """The records to print, and in which form. `limit` and `last` are counts; one of them at most is given. `decoder`
    decodes them before filters see them."""

    form: Form
    filters: Sequence[Filter] = ()
    limit: int | None = None
    last: int | None = None
    decoder: RecordDecoder | None = None


@dataclass(slots=True)
class Selection:
    """Takes records as they are read and gives back what to print."""

    wanted: PrintOptions
    _count: int = 0
    _tie: int = 0
    _last: list[tuple[int, int, ReadRecord]] = field(default_factory=list)
    """The latest so far, the earliest of them first; the number keeps the order of those of one time."""

    @property
    def is_full(self) -> bool:
        """Return True if nothing more is to be printed."""
        return self.wanted.limit is not None and self._count >= self.wanted.limit

    @property
    def left(self) -> int | None:
        """Records that may still be printed; None: without end."""
        return None if self.wanted.limit is None else self.wanted.limit - self._count

    def take(self, records: Iterable[ReadRecord], *, holding: bool) -> bytes:
        """The lines of new records; nothing while the last ones are held until all are known."""
        if self.wanted.decoder is not None:
            records = map(self.wanted.decoder.record, records)
        found = (record for record in records if all(each(record) for each in self.wanted.filters))
        if holding:
            for record in found:
                self._hold(record)
            return b""
        return self._lines(found)

    def release(self) -> bytes:
        """The lines of the last records, by time."""
        held = [record for _, _, record in sorted(self._last, key=lambda each: each[:2])]
        self._last = []
        return self._lines(held)

    def _hold(self, record: ReadRecord) -> None:
        assert self.wanted.last is not None
        self._tie += 1
        keep = heapq.heappush if len(self._last) < self.wanted.last else heapq.heappushpop
        keep(self._last, (record.timestamp, self._tie, record))

    def _lines(self, records: Iterable[ReadRecord]) -> bytes:
        lines: list[bytes] = []
        for record in records:
            if self.is_full:
                break
            lines.append(self.wanted.form(record) + b"\n")
            self._count += 1
        return b"".join(lines)
