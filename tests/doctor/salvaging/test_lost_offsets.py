"""A partition of which a write may be lost: what is known to be lost is unreadable, its end lies behind all given."""

from collections.abc import Iterator

import pytest

from pqbroker.doctor.salvaging.losses import CellSalvage, NewBlobs
from pqbroker.doctor.salvaging.lost_offsets import PartitionSalvage, offsets_given_max
from pqbroker.pq.log.body import decode_index
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.keys import OFFSET_MAX, body_key, cleaned_key, head_key, meta_key
from pqbroker.pq.log.start_state import Meta, StartState, StoredBlob, build_start_state
from pqbroker.protocol.records import stamp
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.mending.salvage import Lost
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing, Buffer
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.channel_profiles import begin_channels
from pqbroker.storage.tablets.tablet import TabletRecord, TabletType, row_prefix
from tests.pq.rig import batch

TABLET = TabletId(70_000)
PREFIX = row_prefix(TABLET)
NAME = "t-0"


class Stored:
    """The index of a cell with one partition, in memory."""

    def __init__(self) -> None:
        self.index: dict[bytes, bytes] = {}
        self.newer: set[bytes] = set()
        self.step = 0
        self.salvage: CellSalvage | None = None

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.index.get(key) for key in keys]

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        yield from sorted((item for item in self.index.items() if lo <= item[0] < hi), reverse=reverse)

    def content(self, blob: BlobKey) -> Buffer:
        row = self.index.get(index_rows.BLOB + blob)
        if row is None:
            raise BlobMissing(blob.hex())
        return index_rows.inline_payload(blob, row)

    def put(self, key: bytes, value: bytes) -> None:
        self.index[key] = value

    def delete(self, key: bytes) -> None:
        self.index.pop(key, None)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        raise AssertionError("no range is deleted")

    def store(self, key: bytes, row: bytes, *, newer: bool) -> None:
        self.index[index_rows.ROW + PREFIX + key] = row
        if newer:
            self.newer.add(index_rows.ROW + PREFIX + key)

    def head(self, offset: int, *, newer: bool = False, body: bool = False) -> BlobKey:
        """Store a record at an offset, as a head blob, or what stands for a body."""
        view, _ = batch(b"%d" % offset)
        data = bytearray(view)
        stamp(memoryview(data), offset, 1)
        self.step += 1
        blob = BlobId(TABLET, 2, 1, self.step, 0, len(data)).key()
        self.index[index_rows.BLOB + blob] = index_rows.inline_row([bytes(data)])
        key = body_key(0, offset, 1) if body else head_key(0, offset, 1)
        self.store(key, Entry.chained(1, blob, len(data)).row, newer=newer)
        return blob

    def meta(self, start: int, end: int, *, newer: bool = False) -> None:
        self.store(meta_key(0), Entry.inline(1, [Meta(start, end, [(1, start)]).encode()], 0).row, newer=newer)

    def plan(self, size_bytes: int = 100) -> list[tuple[str, str]]:
        """Plan and apply the salvage; what it names, by kind."""
        lost = Lost(1, size_bytes, frozenset(self.newer))
        found = self.salvage = CellSalvage(self, lost)
        record = TabletRecord(TABLET, TabletType.PERSQUEUE, 9, begin_channels(TabletType.PERSQUEUE), "")
        PartitionSalvage(found, NewBlobs(found, record), PREFIX, NAME, 0, self.entries()).plan()
        found.changes.apply(self)
        return [(loss.kind, loss.what) for loss in found.losses]

    def entries(self) -> dict[bytes, Entry]:
        start = len(index_rows.ROW + PREFIX)
        return {
            key[start:]: Entry.stored(row) for key, row in self.index.items() if key.startswith(index_rows.ROW + PREFIX)
        }

    def start(self) -> StartState:
        """What a start makes of it."""
        entries = self.entries()
        blobs = [
            StoredBlob(key, entry.size, entry.created_ms, entry.piece_count)
            for key, entry in sorted(entries.items())
            if key[:1] == b"d"
        ]
        return build_start_state(blobs, Meta.decode(bytes(entries[meta_key(0)].value)))

    def value(self, offset: int) -> bytes:
        """The body at an offset, verified."""
        (entry,) = [entry for key, entry in self.entries().items() if key.startswith(b"d0000000000_%020d" % offset)]
        return b"".join(bytes(self.content(blob)) for blob in entry.blobs())


@pytest.fixture
def stored() -> Stored:
    return Stored()


def test_a_partition_that_later_rounds_wrote_is_left_as_it_is(stored: Stored) -> None:
    stored.meta(0, 0)
    stored.head(0)
    stored.head(1, newer=True)
    before = dict(stored.index)
    assert stored.plan() == []
    assert stored.index == before


def test_what_is_known_of_cleanings_goes_with_any_salvage(stored: Stored) -> None:
    stored.meta(0, 0)
    stored.head(0)
    stored.head(1, newer=True)
    before = dict(stored.index)
    stored.store(cleaned_key(0), Entry.inline(1, [CleanedLog(1, 1).encode()], 0).row, newer=True)
    assert stored.plan() == []
    assert stored.index == before, "a lost round may have replaced bodies that are here again"


def test_a_partition_that_lost_where_it_begins_begins_with_its_first_record(stored: Stored) -> None:
    stored.head(4, newer=True)
    stored.head(5, newer=True)
    what = "where it begins, and its leader epochs, are lost: it begins with offset 4"
    assert stored.plan() == [("partitions", what)]
    found = stored.start()
    assert (found.start_offset, found.end_offset) == (4, 6)


def test_offsets_that_are_missing_before_newer_records_become_unreadable(stored: Stored) -> None:
    stored.meta(0, 0)
    stored.head(0)
    stored.head(3, newer=True)
    assert stored.plan() == [
        ("records", "the records with the offsets 1 to 2 are lost: CORRUPT_MESSAGE until a trim")
    ]
    found = stored.start()
    assert list(found.bodies.spans()) == [(0, 1), (1, 3), (3, 4)]
    assert found.end_offset == 4
    assert not found.head.blobs
    with pytest.raises(BlobCorrupt):
        stored.value(1)


def test_a_hole_that_a_mirror_left_before_the_lost_round_stays_a_hole(stored: Stored) -> None:
    stored.meta(0, 0)
    stored.head(0, body=True)
    stored.head(5, body=True)
    stored.head(6, newer=True)
    assert stored.plan() == []


def test_an_end_that_nobody_knows_moves_behind_all_that_can_have_been_given(stored: Stored) -> None:
    stored.meta(0, 0)
    stored.head(0)
    stored.head(1)
    ((kind, what),) = stored.plan(6_000)
    end = 2 + offsets_given_max(Lost(1, 6_000, frozenset()))
    assert (kind, what.rpartition(" ")[2]) == ("offsets", str(end))
    assert stored.start().end_offset == end
    assert stored.salvage is not None
    assert stored.salvage.skipped == {NAME: [(2, end)]}


def test_each_batch_that_fits_in_the_lost_bytes_may_have_had_all_offsets_that_a_header_can_say() -> None:
    assert offsets_given_max(Lost(1, 60, frozenset())) == 1 << 31
    assert offsets_given_max(Lost(1, 61 * 5, frozenset())) == 6 << 31
    assert offsets_given_max(Lost(2, 0, frozenset())) > (2 << 31) * ((64 << 20) // 62)


def test_a_head_becomes_bodies_with_an_index_of_their_batches(stored: Stored) -> None:
    stored.meta(0, 0)
    for offset in range(3):
        stored.head(offset)
    stored.plan()
    found = stored.start()
    assert list(found.bodies.spans()) == [(0, 1), (1, 2), (2, 3)]
    for offset in range(3):
        index = decode_index(stored.value(offset))
        assert index is not None
        assert (list(index.offsets), index.end_offset) == ([offset], offset + 1)


def test_a_head_before_a_newer_body_becomes_bodies(stored: Stored) -> None:
    stored.meta(0, 0)
    stored.head(0)
    stored.head(1, newer=True, body=True)
    assert stored.plan() == []
    assert list(stored.start().bodies.spans()) == [(0, 1), (1, 2)]


def test_blobs_that_a_newer_one_holds_are_gone(stored: Stored) -> None:
    stored.meta(0, 0)
    stored.head(0)
    stored.head(1)
    row = Entry.chained(1, BlobId(TABLET, 2, 1, 99, 0, 5).key(), 5).row
    stored.index[index_rows.BLOB + BlobId(TABLET, 2, 1, 99, 0, 5).key()] = index_rows.inline_row([b"12345"])
    stored.store(body_key(0, 0, 2), row, newer=True)
    assert stored.plan() == []
    assert [key for key in stored.entries() if key[:1] == b"d"] == [body_key(0, 0, 2)]


def test_a_blob_that_is_gone_is_found_damaged(stored: Stored) -> None:
    stored.meta(0, 0)
    blob = stored.head(0)
    stored.head(1, newer=True)
    del stored.index[index_rows.BLOB + blob]
    ((kind, what),) = stored.plan()
    assert kind == "records"
    assert what.startswith("some of the records with the offsets 0 to 0 are lost")
    with pytest.raises(BlobCorrupt):
        stored.value(0)


def test_a_partition_of_which_nothing_is_known_begins_behind_what_can_have_been_given(stored: Stored) -> None:
    assert [kind for kind, _ in stored.plan()] == ["offsets"]
    found = stored.start()
    assert found.start_offset == found.end_offset == offsets_given_max(Lost(1, 100, frozenset()))


def test_an_end_leaves_room_for_more_records(stored: Stored) -> None:
    stored.meta(0, OFFSET_MAX - 1_000)
    stored.plan(1 << 40)
    assert stored.start().end_offset < OFFSET_MAX - 400


def test_keys_that_contradict_each_other_stay_as_they_are(stored: Stored) -> None:
    stored.meta(0, 0)
    row = Entry.chained(1, stored.head(0), 5).row
    stored.store(body_key(0, 0, 5), row, newer=False)
    stored.store(body_key(0, 3, 5), row, newer=True)
    ((kind, what),) = stored.plan()
    assert kind == "records"
    assert "stays refused" in what
