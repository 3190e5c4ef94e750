"""The blobs of a cell: where the index says they are, who holds them, and whether segments agree."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pqbroker.doctor.findings import RESTORE, Findings
from pqbroker.doctor.readable_rows import readable_rows
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.offline import OfflineCell
from pqbroker.storage.disk.pools import Segment
from pqbroker.storage.disk.segment_check import check_tail
from pqbroker.storage.disk.segments import Location, parse_segment_name, record_bytes, segment_name
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing, Buffer, EngineError, IndexDamaged
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.tablet import TabletRecord

SegmentKey = tuple[str, int, int]
"""Pool, generation, sequence."""


@dataclass(slots=True)
class StoredBlobs:
    """Every blob of the index: where it lies, how many hold it, whether its bytes were read."""

    cell: OfflineCell
    findings: Findings
    holders: dict[BlobKey, int] = field(default_factory=dict)
    _unheld: dict[int, int] = field(default_factory=dict)
    """Blobs that nobody holds, counted by tablet."""
    _partial: set[int | None] = field(default_factory=set)
    """Tablets of which some blobs' rows cannot be read."""
    _read: set[BlobKey] = field(default_factory=set)
    _places: dict[SegmentKey, list[Location]] = field(default_factory=dict)
    _names: dict[tuple[SegmentKey, int], BlobKey] = field(default_factory=dict)

    def load(self, tablets: Iterable[int]) -> int:
        """Read the index's rows about blobs; the bytes there are to verify."""
        total = 0
        for key, row in readable_rows(self.cell, index_rows.BLOB, tablets, self._skip):
            blob = BlobKey(key[1:])
            try:
                at = index_rows.location(row)
                size, told = index_rows.blob_size(row), BlobId.from_key(blob).size
            except (ValueError, struct.error, IndexError):
                self.findings.damage("blob", name_of(blob), "its index row cannot be read")
                continue
            if at is not None and at.pool not in self.cell.pools:
                self.findings.damage("blob", name_of(blob), f"it lies in pool {at.pool}, which there is not")
                continue
            self.holders[blob] = 0
            self._count_unheld(blob, 1)
            total += told
            if size != told:
                self.findings.damage("blob", name_of(blob), f"the index gives it {size} bytes, its id does not")
            if at is not None:
                place = (at.pool, at.generation, at.sequence)
                self._places.setdefault(place, []).append(at)
                self._names[place, at.position] = blob
        self.findings.count("blobs", len(self.holders))
        return total

    def _skip(self, tablet: int | None) -> None:
        self._partial.add(tablet)
        whose = "no tablet" if tablet is None else f"tablet {tablet}"
        told = "rows about its blobs cannot be read: their records are refused when they are read"
        self.findings.damage("blob", whose, told)

    def hold(self, blob: BlobKey) -> bool:
        """Count a holder of a blob; False when there is no such blob."""
        holders = self.holders.get(blob)
        if holders is None:
            return BlobId.from_key(blob).tablet in self._partial
        if not holders:
            self._count_unheld(blob, -1)
        self.holders[blob] = holders + 1
        return True

    def has_leaks(self, tablet: int) -> bool:
        """Return True if nobody holds some of the tablet's blobs; to be asked when all its rows have been looked at."""
        return self._unheld.get(tablet, 0) > 0

    def content(self, blob: BlobKey) -> Buffer:
        """A blob's verified bytes. Raises BlobMissing, BlobCorrupt, which the caller reports; PermissionError."""
        if blob not in self.holders and BlobId.from_key(blob).tablet not in self._partial:
            raise BlobMissing(blob.hex())
        if blob not in self._read:
            self._read.add(blob)
            self.findings.advance(BlobId.from_key(blob).size)
        try:
            return self.cell.content(blob)
        except IndexDamaged as damage:
            raise BlobCorrupt(blob, 0, str(damage)) from damage
        except PermissionError:  # says nothing of the data
            raise
        except OSError as failure:  # a bad disk is what the doctor is asked about
            raise BlobCorrupt(blob, 0, f"its segment cannot be read: {failure.strerror}") from failure

    def hold_all(self, tablet: int) -> None:
        """Count all blobs of the tablet as held, since the rows that hold them are unreadable."""
        for blob in self.holders:
            if BlobId.from_key(blob).tablet == tablet:
                self.hold(blob)

    def check_owners(
        self, tablets: dict[TabletId, TabletRecord], pools: tuple[str, ...], unreadable: set[TabletId]
    ) -> None:
        """Every blob belongs to a tablet, was written by a generation of it, and lies where that one wrote.

        `unreadable`: tablets of which that cannot be said.
        """
        for blob in self.holders:
            found = BlobId.from_key(blob)
            record = tablets.get(found.tablet)
            if found.tablet in unreadable:
                continue
            if record is None:
                self.findings.harmless("blob", name_of(blob), "no tablet owns it", "nothing: it only takes room")
            elif found.generation > record.generation:
                told = f"generation {found.generation} wrote it, but the tablet has come to {record.generation} only"
                self.findings.damage("blob", name_of(blob), told)
            elif found.channel >= len(record.channels):
                self.findings.damage("blob", name_of(blob), f"its tablet has {len(record.channels)} channels")
        for (pool, generation, sequence), places in self._places.items():
            for at in places:
                blob = self._names[(pool, generation, sequence), at.position]
                owner = tablets.get(BlobId.from_key(blob).tablet)
                if owner is not None and _pool_of(blob, owner, pools) not in (pool, None):
                    told = f"it lies in pool {pool}, where its channel never wrote"
                    self.findings.damage("blob", name_of(blob), told)

    def check_leaks(self, tablets: dict[TabletId, TabletRecord]) -> None:
        """Report blobs that no row holds, except those of tablets that are being dropped."""
        for blob, holders in self.holders.items():
            record = tablets.get(BlobId.from_key(blob).tablet)
            if not holders and record is not None and not record.dropping:
                self.findings.harmless("blob", name_of(blob), "no row holds it", "nothing: it only takes room")

    def verify_rest(self) -> None:
        """Read the blobs that no check has read yet, and report bad ones."""
        for blob in self.holders.keys() - self._read:
            try:
                self.content(blob)
            except (BlobCorrupt, BlobMissing) as bad:
                self.findings.damage("blob", name_of(blob), str(bad))

    def check_segments(self, last_number: int) -> None:
        """Files, counts and order of every segment, and the files that the index does not know."""
        known: set[SegmentKey] = set()
        for key, row in self.cell.rows(*index_rows.SEGMENT_ROWS):
            try:
                name, generation, sequence, end, live = index_rows.parse_segment(key, row)
            except EngineError:
                self.findings.damage("segment", key.hex(), "its index row cannot be read")
                continue
            known.add((name, generation, sequence))
            self._check_segment(name, Segment(generation, sequence, end, live), last_number)
        for place in self._places.keys() - known:
            self.findings.damage("segment", _file_name(place), "blobs lie in it, but the index has no row about it")
        self._check_files(known, last_number)
        self.findings.count("segments", len(known))

    def _count_unheld(self, blob: BlobKey, number: int) -> None:
        tablet = BlobId.from_key(blob).tablet
        self._unheld[tablet] = self._unheld.get(tablet, 0) + number

    def _check_segment(self, pool: str, segment: Segment, last_number: int) -> None:
        place = (pool, segment.generation, segment.sequence)
        where = _file_name(place)
        places = sorted(self._places.get(place, ()), key=lambda at: at.position)
        live = sum(record_bytes(at.size) for at in places)
        if live != segment.live and not self._partial:
            self.findings.damage("segment", where, f"{live} bytes of it are alive, the index counts {segment.live}")
        end = 0
        for at in places:
            if at.position < end:
                blob = name_of(self._names[place, at.position])
                self.findings.damage("segment", where, f"blob {blob} at byte {at.position} overlaps the one before")
            end = at.position + record_bytes(at.size)
        if end > segment.end:
            told = f"blobs reach to byte {end}, though it ends at {segment.end}"
            self.findings.damage("segment", where, told)
        if pool not in self.cell.pools:
            self.findings.damage("segment", where, f"there is no pool {pool}")
            return
        path = self.cell.pools[pool] / segment_name(segment.generation, segment.sequence)
        size = path.stat().st_size if path.exists() else 0
        if size < segment.end and places:
            self.findings.damage("segment", where, f"the file has {size} of its {segment.end} bytes")
        if size > segment.end:
            self._check_behind(path, segment.end, last_number)

    def _check_files(self, known: set[SegmentKey], last_number: int) -> None:
        for pool, directory in self.cell.pools.items():
            for path in sorted(directory.iterdir()):
                key = parse_segment_name(path.name)
                if key is None or (pool, *key) in known:
                    continue
                self.findings.harmless("segment", _file_name((pool, *key)), "no row of the index names this file")
                self._check_behind(path, 0, last_number)

    def _check_behind(self, path: Path, end: int, last_number: int) -> None:
        try:
            check_tail(path, end, last_number)
        except EngineError as lost:
            self.findings.damage("index", "commits", str(lost), RESTORE)
        except PermissionError:
            raise
        except OSError as failure:
            self.findings.damage("segment", str(path), f"it cannot be read: {failure.strerror}")


def name_of(blob: bytes) -> str:
    """The text of a blob id; hexadecimal where it is none."""
    return str(BlobId.from_key(blob)) if len(blob) == 24 else blob.hex()


def _pool_of(blob: BlobKey, owner: TabletRecord, pools: tuple[str, ...]) -> str | None:
    """The pool that the blob's channel wrote to in the blob's generation; None when history does not say."""
    found = BlobId.from_key(blob)
    try:
        return pools[owner.channels[found.channel].pool_at(found.generation)]
    except (ValueError, IndexError):
        return None


def _file_name(place: SegmentKey) -> str:
    pool, generation, sequence = place
    return f"{pool}/{segment_name(generation, sequence)}"


def _next(prefix: bytes) -> bytes:
    return bytes((prefix[0] + 1,))
