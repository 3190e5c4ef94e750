"""The rows of a cell by tablet: facts of the cell, records, blocks, barriers, flags; and whose row is whose."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pqbroker.doctor.contents import require
from pqbroker.doctor.findings import Findings
from pqbroker.doctor.readable_rows import readable_rows
from pqbroker.storage.blobs.blob_id import channel_bounds
from pqbroker.storage.blobs.blob_storage import BARRIERS, BLOCK, DO_NOT_KEEP, FLAG, GARBAGE, KEEP, decode_block
from pqbroker.storage.blobs.garbage import Barriers
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.offline import OfflineCell
from pqbroker.storage.engine import IndexDamaged
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.cell_facts import (
    CELL_FACTS,
    FORMAT_KEY,
    FORMAT_VERSION,
    POOLS_KEY,
    SCHEME_KEY,
    decode_pools,
)
from pqbroker.storage.tablets.scheme_mark import decode_mark
from pqbroker.storage.tablets.tablet import RECORD, ROWS, TabletRecord, row_prefix
from pqbroker.storage.unreadable import StoredUnreadable

_TABLET_BYTES = 9
"""Kind and tablet id, with which every row of a tablet begins."""
_UNREADABLE = (IndexError, struct.error, ValueError)


@dataclass(slots=True)
class TabletRows:
    """A cell's rows about its tablets."""

    cell: OfflineCell
    findings: Findings
    records: dict[TabletId, TabletRecord] = field(default_factory=dict)
    unreadable: set[TabletId] = field(default_factory=set)
    """Tablets whose record cannot be read."""
    pools: tuple[str, ...] = ()
    """Pool names by number."""

    def load(self) -> None:
        """Read everything but the rows of KV tablets."""
        self._read_facts()
        for key, row in self._rows(RECORD):
            tablet = TabletId(int.from_bytes(key[1:], "big"))
            try:
                self.records[tablet] = TabletRecord.decode(tablet, row)
            except StoredUnreadable as bad:
                self.unreadable.add(tablet)
                self.findings.damage("tablet", f"tablet {tablet}", f"its record cannot be read: {bad.cause}", bad.cure)
        for record in self.records.values():
            self._check_record(record)
        for key, row in readable_rows(self.cell, index_rows.ROW + GARBAGE, self.records, self._skip):
            self._check_garbage(key[1:], row)
        self._check_kinds()
        self.findings.count("tablets", len(self.records))

    def of(self, tablet: TabletId) -> Iterator[tuple[bytes, bytes]]:
        """A tablet's own rows in order, keys without what all of them begin with."""
        lo, hi = row_prefix(tablet), row_prefix(TabletId(tablet + 1))
        for key, row in self.cell.rows(index_rows.ROW + lo, index_rows.ROW + hi):
            yield key[1 + len(lo) :], row

    def check_strays(self) -> None:
        """Rows under the id of no tablet."""
        strays: dict[int, int] = {}
        for key, _ in readable_rows(self.cell, index_rows.ROW + ROWS, self.records, _tell_nobody):
            tablet = int.from_bytes(key[2 : 1 + _TABLET_BYTES], "big")
            if tablet not in self.records and tablet not in self.unreadable:
                strays[tablet] = strays.get(tablet, 0) + 1
        for tablet, count in strays.items():
            told = f"{count} rows of a tablet that has no record"
            self.findings.damage("tablet", f"tablet {tablet}", told)

    def _read_facts(self) -> None:
        keys = (FORMAT_KEY, POOLS_KEY, SCHEME_KEY)
        version, pools, mark = self.cell.get([index_rows.ROW + key for key in keys])
        if version is not None and version != bytes((FORMAT_VERSION,)):
            told = f"it is {version.hex()}; this version reads {FORMAT_VERSION}: a newer one wrote it, or it is damaged"
            self.findings.damage("cell", "format", told, "run the version that wrote it, or restore a copy")
        try:
            self.pools = decode_pools(pools)
        except UnicodeDecodeError as bad:
            self.findings.damage("cell", "pools", f"their names cannot be read: {bad}")
        try:
            if mark is not None:
                decode_mark(mark)
        except ValueError as bad:
            self.findings.damage("cell", "scheme", str(bad))
        unknown = set(self.pools) - set(self.cell.pools)
        if unknown:
            self.findings.damage("cell", "pools", f"{', '.join(sorted(unknown))} are not among the directory's")

    def _check_record(self, record: TabletRecord) -> None:
        where = f"tablet {record.tablet_id}"
        for number, channel in enumerate(record.channels):
            if any(pool >= len(self.pools) for _, pool in channel.ranges):
                self.findings.damage("tablet", where, f"channel {number} is in a pool that does not exist")
            if channel.ranges[-1][0] > record.generation + 1:
                self.findings.damage("tablet", where, f"channel {number} moved in a generation that is not yet")

    def _check_garbage(self, key: bytes, row: bytes) -> None:
        """A block, the barriers of a channel, or a flag of a blob."""
        tablet = TabletId(int.from_bytes(key[1:_TABLET_BYTES], "big"))
        where = f"tablet {tablet}"
        kind, rest = key[_TABLET_BYTES : _TABLET_BYTES + 1], key[_TABLET_BYTES + 1 :]
        record = self.records.get(tablet)
        if tablet in self.unreadable:
            return
        if record is None:
            self.findings.damage("tablet", where, "a block or barrier of a tablet that has no record")
            return
        try:
            if kind == BLOCK and not rest:
                blocked = decode_block(row)
                if blocked >= record.generation and not record.dropping:
                    told = f"generation {record.generation} runs, though {blocked} is blocked"
                    self.findings.damage("tablet", where, told)
            elif kind == BARRIERS and len(rest) == 1:
                barriers = Barriers.decode(row)
                if max(barriers.soft, barriers.hard)[0] > record.generation:
                    self.findings.damage("tablet", where, f"channel {rest[0]} has a barrier in the future")
            elif kind == FLAG and row in (KEEP, DO_NOT_KEEP) and len(rest) == 24:
                lo, hi = channel_bounds(tablet, rest[8])
                require(lo <= rest < hi, "a flag of another tablet's blob")
            else:
                self.findings.damage("tablet", where, f"a row of no known kind: {key.hex()}")
        except _UNREADABLE as bad:
            self.findings.damage("tablet", where, f"row {key.hex()} cannot be read: {bad}")

    def _skip(self, tablet: int | None) -> None:
        whose = "no tablet" if tablet is None else f"tablet {tablet}"
        self.findings.damage("tablet", whose, "its block or barriers cannot be read: it is refused")

    def _check_kinds(self) -> None:
        """Check that every row of a tablet is of a known kind."""
        lo = b""
        for kind in (*sorted((CELL_FACTS, GARBAGE, ROWS, RECORD)), b"\xff"):
            with suppress(IndexDamaged):  # told by the cell
                for key, _ in self.cell.rows(index_rows.ROW + lo, index_rows.ROW + kind):
                    told = f"row {key.hex()}"
                    self.findings.damage("index", told, "a row of no known kind", "run the version that wrote it")
            lo = bytes((min(kind[0] + 1, 255),))

    def _rows(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows of one kind in order, with the keys that the cell gave them."""
        end = bytes((kind[0] + 1,))
        for key, row in self.cell.rows(index_rows.ROW + kind, index_rows.ROW + end):
            yield key[1:], row


def _tell_nobody(tablet: int | None) -> None:
    """Rows that cannot be read are reported where they are looked at."""
