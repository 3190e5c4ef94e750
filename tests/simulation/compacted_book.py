"""Checker of cleanings: a naive partition of records tells which of them a compacted one owes its readers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.ledger import expect


class Keyed(NamedTuple):
    """One record; a value of None deletes its key."""

    key: bytes
    value: bytes | None


Found = Sequence[tuple[int, Keyed]]
"""Offsets and records, as they were read."""


@dataclass(slots=True)
class CompactedBook:
    """All records that were ever stored, by offset, and the ones that may be."""

    log: dict[int, Keyed] = field(default_factory=dict)
    written_ms: dict[int, int] = field(default_factory=dict)
    """Time before which a record was not written."""
    pending: Sequence[Keyed] = ()
    """A batch that was sent and is not acknowledged."""
    start: int = 0
    end: int = 0
    retention_ms_min: int = 1 << 62
    retention_ms_max: int = 0
    """Least and greatest delete.retention.ms so far: the one of the first cleaning of a tombstone counts."""
    horizons: dict[int, int] = field(default_factory=dict)
    """Times at which tombstones may not be left by a cleaning any more, by offset."""

    def acknowledge(self, base_offset: int, records: Sequence[Keyed]) -> None:
        for offset, record in enumerate(records, base_offset):
            known = self.log.setdefault(offset, record)
            expect(known == record, f"offset {offset} holds {known}, and {record} was acknowledged there")
        self.end = max(self.end, base_offset + len(records))

    def bounds(self, start: int, end: int) -> None:
        """Somebody has seen the partition with these bounds."""
        expect(start >= self.start, f"it starts at {start}; it started at {self.start}")
        expect(end >= self.end, f"it ends at {end}; it ended at {self.end}")
        self.start, self.end = start, end

    def last(self) -> dict[bytes, int]:
        """The last offset of each key, but for keys that are being written."""
        found = {record.key: offset for offset, record in sorted(self.log.items())}
        return {key: offset for key, offset in found.items() if key not in {one.key for one in self.pending}}

    def read(self, found: Found, last: dict[bytes, int], start: int, now_ms: int) -> None:
        """Somebody has read all from the start on, beside whatever else happened. `last`: as it was when the reading
        began; `now_ms`: when it ended; `start`: where the partition starts since."""
        offsets = [offset for offset, _ in found]
        expect(offsets == sorted(set(offsets)), f"offsets are read out of order: {offsets}")
        for offset, record in found:
            expect(record in self.pending or offset in self.log, f"offset {offset} holds {record}, which nobody wrote")
            known = self.log.setdefault(offset, record)
            expect(known == record, f"offset {offset} holds {record}, it held {known}")
        read = {record.key: offset for offset, record in found}
        newest = {record.key: offset for offset, record in sorted(self.log.items())}
        for key, offset in last.items():
            if offset < start:
                continue
            if key in read:
                value = self.log[offset].value
                expect(read[key] >= offset, f"key {key!r} is read as of {read[key]}; it was {value!r} at {offset}")
            else:
                self._may_be_gone(key, newest[key], now_ms)

    def _may_be_gone(self, key: bytes, offset: int, now_ms: int) -> None:
        """No record of a key was read: its newest one, at this offset, is a tombstone old enough to be removed."""
        value = self.log[offset].value
        expect(value is None, f"key {key!r} has {value!r} at offset {offset}, and it is gone")
        young = now_ms < self.written_ms.get(offset, 0) + self.retention_ms_min
        expect(not young, f"the tombstone at offset {offset} is gone too early")

    def configured(self, retention_ms: int) -> None:
        """Note a delete.retention.ms that may act."""
        self.retention_ms_min = min(self.retention_ms_min, retention_ms)
        self.retention_ms_max = max(self.retention_ms_max, retention_ms)

    def cleaned(self, found: Found, bound: int, begun_ms: int) -> None:
        """A cleaning that began at that time is over, of all before `bound`, and nothing was written since."""
        behind = [(offset, record) for offset, record in found if offset < bound]
        keys = [record.key for _, record in behind]
        twice = {key for key in keys if keys.count(key) > 1}
        expect(not twice, f"keys {twice} have several records behind the head, after a cleaning up to {bound}: {found}")
        for offset, record in behind:
            if record.value is None:
                horizon = self.horizons.setdefault(offset, begun_ms + self.retention_ms_max)
                expect(begun_ms < horizon, f"the tombstone at {offset} is there {begun_ms - horizon} ms after its time")
