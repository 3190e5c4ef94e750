"""The doctor finds each kind of damage, names its place, and leaves every byte as it was."""

import asyncio
import errno
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pqbroker.__main__ import main
from pqbroker.broker.services.cells.cell_owner import open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.doctor import tablets
from pqbroker.doctor.checkup import examine
from pqbroker.doctor.findings import FINDINGS_MAX, Finding, Findings, Weight
from pqbroker.doctor.partitions import Partition
from pqbroker.pq.log import consumers, producers
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.log.keys import aborted_key, outcome_key, prepared_key
from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.producer_transactions import AbortedSpan
from pqbroker.pq.log.producers import StoredBatch, TransactionalState
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.log.start_state import Meta
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.directory import index_generation, index_path
from pqbroker.storage.disk.mending.facts_copy import FACTS_COPY, FACTS_FILE
from pqbroker.storage.disk.offline import look_into
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.disk.segments import Location, encode_record, record_bytes, segment_name
from pqbroker.storage.engine import EngineError
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.cell_facts import SCHEME_KEY
from pqbroker.storage.tablets.tablet import TabletType, record_key, row_prefix
from pqbroker.testing import BrokerFailedError, broker
from tests.faults.power.recording import resident
from tests.faults.power.workload import PARTITIONS, TOPIC, Book, load
from tests.faults.test_flipped_bytes import flip
from tests.pq.rig import batch, transactional
from tests.pq.serving.transacting import decision, head, transaction
from tests.support.cli_page import KEYS

ROW, BLOB = index_rows.ROW, index_rows.BLOB
SETTINGS = {"pqbroker.segment.bytes": str(1 << 20), "pqbroker.ballast.bytes": "0"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped broker's directory: bodies, heads, trims, consumers, producers, topics made and deleted."""
    directory = tmp_path_factory.mktemp("doctor") / "data"
    with broker(directory, SETTINGS) as node:
        asyncio.run(load(node.kafka, Book(), random.Random(3), 25))
        node.restart()
        producer = Producer({"bootstrap.servers": node.kafka, "log_level": 0, "enable.idempotence": True})
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"small", partition=partition)
        assert producer.flush(30) == 0
    return directory


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """A copy of the directory to break."""
    return shutil.copytree(written, tmp_path / "data")


class Index:
    """The index of a stopped cell, to be changed by hand."""

    def __init__(self, rows: RocksIndex) -> None:
        self._rows = rows
        self._number = 0

    def rows(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return list(self._rows.rows(prefix, prefix + b"\xff" * 40))

    def keys(self, first: bytes) -> list[tuple[bytes, bytes]]:
        """Index rows of the topic's KV keys that begin so."""
        found = [(key, row) for key, row in self.rows(ROW + b"K") if key[10:].startswith(first)]
        assert found, first
        return found

    def put(self, key: bytes, row: bytes) -> None:
        self._number += 1
        changes = IndexChanges()
        changes.put(key, row)
        self._rows.write(changes, self._number)

    def delete(self, key: bytes) -> None:
        self._number += 1
        changes = IndexChanges()
        changes.delete(key)
        self._rows.write(changes, self._number)


@contextmanager
def changed(data: Path) -> Iterator[Index]:
    rows = RocksIndex(index_path(data, index_generation(data)))
    rows.open(create=False)
    try:
        yield Index(rows)
    finally:
        rows.close()


def look(data: Path) -> list[Finding]:
    """What the doctor finds; the directory is as it was."""
    before = resident(data)
    findings = Findings(lambda size: None)
    asyncio.run(examine(data, {}, findings, lambda total: None))
    assert resident(data) == before
    assert findings.damages == sum(finding.weight is Weight.DAMAGE for finding in findings.found)
    return findings.found


def damages(data: Path) -> list[str]:
    """Damage as lines of check, where, what."""
    found = [finding for finding in look(data) if finding.weight is Weight.DAMAGE]
    assert all(finding.cure for finding in found)
    return [f"{finding.check}: {finding.where}: {finding.what}" for finding in found]


def test_a_healthy_directory_is_healthy_and_all_of_it_was_read(written: Path) -> None:
    verified: list[int] = []
    expected: list[int] = []
    findings = Findings(verified.append)
    asyncio.run(examine(written, {}, findings, expected.append))
    assert findings.found == []
    assert sum(verified) == expected[0] > 1 << 20
    wanted = "blobs tablets topics groups keys partitions records producers consumers sessions facts segments"
    assert findings.seen.keys() == {
        *wanted.split(), "transactional_ids", "modern_groups", "modern_members", "modern_assignments",
    }  # fmt: skip
    assert findings.seen["partitions"] == findings.seen["producers"] == PARTITIONS
    assert findings.seen["consumers"] > 0


def lose_a_blob(index: Index) -> None:
    entry = Entry.stored(index.keys(b"d")[0][1])
    index.delete(BLOB + next(entry.blobs()))


def misstate_a_blob(index: Index) -> None:
    key, row = next((key, row) for key, row in index.rows(BLOB) if index_rows.location(row))
    at = index_rows.location(row)
    assert at is not None
    index.put(key, index_rows.located_row(at._replace(size=at.size - 1)))


def cut_a_blobs_id(index: Index) -> None:
    key, row = index.rows(BLOB)[0]
    index.put(key[:-1], row)


def put_a_blob_nowhere(index: Index) -> None:
    key, row = next((key, row) for key, row in index.rows(BLOB) if index_rows.location(row))
    at = index_rows.location(row)
    assert at is not None
    index.put(key, index_rows.located_row(at._replace(pool="moon")))


def lose_the_scheme(index: Index) -> None:
    index.delete(ROW + record_key(TabletId(1)))


def lose_the_log_of_the_scheme(index: Index) -> None:
    for key, _ in index.rows(BLOB + (1).to_bytes(8, "big") + b"\0"):
        index.delete(key)


def damage_an_inline_blob(index: Index) -> None:
    key, row = next((key, row) for key, row in index.rows(BLOB) if index_rows.location(row) is None)
    index.put(key, row[:-1] + bytes([row[-1] ^ 1]))


def miscount_a_segment(index: Index) -> None:
    key, row = index.rows(index_rows.SEGMENT)[0]
    _, _, _, end, live = index_rows.parse_segment(key, row)
    index.put(key, index_rows.segment_row(end, live - 1))


def forget_a_segment(index: Index) -> None:
    index.delete(index.rows(index_rows.SEGMENT)[0][0])


def lose_a_commit(index: Index) -> None:
    index.delete(b"n\x00\x05")


def add_a_strange_row(index: Index) -> None:
    index.put(b"z", b"?")


def add_a_strange_cell_row(index: Index) -> None:
    index.put(ROW + b"Q", b"?")


def damage_the_mark(index: Index) -> None:
    index.put(ROW + SCHEME_KEY, b"\xff")


def damage_a_record(index: Index) -> None:
    key, _ = index.rows(ROW + b"T")[1]
    index.put(key, b"\x09")


def retype_a_tablet(index: Index) -> None:
    key, row = index.rows(ROW + b"T")[-1]
    index.put(key, row[:1] + bytes((TabletType.COORDINATOR,)) + row[2:])


def block_the_future(index: Index) -> None:
    key, row = index.rows(ROW + b"G")[0]
    index.put(key, row[:-1] + b"\xff")


def damage_a_row(index: Index) -> None:
    key, row = index.keys(b"d")[0]
    index.put(key, b"\x07" + row[1:])


def share_a_blob_unsaid(index: Index) -> None:
    key, row = next(item for item in index.keys(b"d") if not Entry.stored(item[1]).is_inline)
    index.put(key[:10] + b"d0000000000_%020d_00000_0000000001_00000|" % (1 << 40), row)


def lose_a_body(index: Index) -> None:
    bodies = [key for key, _ in index.keys(b"d0000000001") if not key.endswith(b"|")]
    index.delete(bodies[len(bodies) // 2])


def lose_the_meta_row(index: Index) -> None:
    index.delete(index.keys(b"i0000000002")[0][0])


def lose_the_tail(index: Index) -> None:
    key, row = index.keys(b"i0000000002")[0]
    meta = Meta.decode(bytes(Entry.stored(row).value))
    further = meta._replace(end_offset=1 << 40).encode()
    index.put(key, Entry.inline(1, (further,), len(further)).row)


def damage_the_meta_row(index: Index) -> None:
    key, _ = index.keys(b"i0000000002")[0]
    index.put(key, Entry.inline(1, (b"\x63",), 1).row)


def write_a_session_that_is_none(index: Index) -> None:
    key, _ = index.keys(b"m0000000000p")[0]
    stored = SessionBatch(1, 1, 1, -1).encode()
    index.put(key[:10] + b"m0000000000sno", Entry.inline(1, (stored,), len(stored)).row)


def write_from_the_future(index: Index) -> None:
    key, row = index.keys(b"m0000000000p")[0]
    state = producers.decode(bytes(Entry.stored(row).value))
    ahead = producers.encode(state._replace(batches=(StoredBatch(0, 0, 1 << 40, -1),)))
    index.put(key, Entry.inline(1, (ahead,), len(ahead)).row)


def put_aborted(index: Index, marker_offset: int) -> None:
    """Put the span of an aborted Kafka transaction into partition 0."""
    key, _ = index.keys(b"i0000000000")[0]
    stored = AbortedSpan(marker_offset, 7, 0, 1).encode()
    name = key[: -len(b"i0000000000")] + aborted_key(0, marker_offset)
    index.put(name, Entry.inline(1, (stored,), len(stored)).row)


def abort_in_the_future(index: Index) -> None:
    put_aborted(index, 1 << 40)


def open_in_the_future(index: Index) -> None:
    key, row = index.keys(b"m0000000000p")[0]
    state = producers.decode(bytes(Entry.stored(row).value))
    ahead = producers.encode(state._replace(transactional=TransactionalState(0, -1, 1 << 40, 5)))
    index.put(key, Entry.inline(1, (ahead,), len(ahead)).row)


def read_below_nought(index: Index) -> None:
    key, _ = index.keys(b"m")[-1]
    row = consumers.encode(ConsumerOffset(-7))
    index.put(key[:10] + b"m0000000000creaders", Entry.inline(1, (row,), len(row)).row)


def add_a_strange_key(index: Index) -> None:
    key, row = index.keys(b"i")[0]
    index.put(key[:10] + b"k0000000000", row)


def put_prepared(index: Index, number: int, value: bytes | None = None) -> None:
    """Put the rows of a transaction into partition 0."""
    key, _ = index.keys(b"i0000000000")[0]
    rows = PreparedBatches(None, [batch(b"a")], [None]).encode()
    stored = value or head(number).encode() + b"".join(map(bytes, rows))
    name = key[: -len(b"i0000000000")] + prepared_key(0, transaction(number))
    index.put(name, Entry.inline(1, (stored,), len(stored)).row)


def put_decision(index: Index, number: int, of: int) -> None:
    key, _ = index.keys(b"i0000000000")[0]
    stored = decision(of, 1).encode()
    name = key[: -len(b"i0000000000")] + outcome_key(0, transaction(number))
    index.put(name, Entry.inline(1, (stored,), len(stored)).row)


def prepare_twice(index: Index) -> None:
    put_prepared(index, 1)
    put_prepared(index, 2)


def prepare_what_is_none(index: Index) -> None:
    put_prepared(index, 1, head(1).encode() + b"\1")


def prepare_for_another(index: Index) -> None:
    put_prepared(index, 1, head(2).encode() + b"".join(PreparedBatches(None, [batch(b"a")], [None]).encode()))


def decide_for_another(index: Index) -> None:
    put_decision(index, 1, of=2)


def add_a_transaction_without_a_name(index: Index) -> None:
    key, row = index.keys(b"i0000000000")[0]
    index.put(key[: -len(b"i0000000000")] + b"p0000000000_0", row)


def add_a_partition_too_many(index: Index) -> None:
    key, row = index.keys(b"i0000000000")[0]
    index.put(key[:10] + b"i0000000009", row)


def add_a_row_of_no_tablet(index: Index) -> None:
    index.put(ROW + row_prefix(TabletId(1 << 50)) + b"i0000000000", b"")


def break_the_log_of_the_scheme(index: Index) -> None:
    logs = [key for key, _ in index.rows(BLOB) if BlobId.from_key(key[1:])[:2] == (1, 0)]
    index.delete(logs[len(logs) // 2])


def change_a_record(index: Index) -> None:
    key, value = small_head(index)
    value[-1] ^= 1
    index.put(key, Entry.inline(1, (value,), len(value)).row)


def move_a_batch(index: Index) -> None:
    key, value = small_head(index)
    value[7] ^= 1
    index.put(key, Entry.inline(1, (value,), len(value)).row)


def small_head(index: Index) -> tuple[bytes, bytearray]:
    """A head value that its row holds itself."""
    heads = [(key, Entry.stored(row)) for key, row in index.keys(b"d") if key.endswith(b"|")]
    return next((key, bytearray(entry.value)) for key, entry in heads if entry.is_inline)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lose_a_blob, r"kv: power, key d.*blob \[\d+:.*\] is not there"),
        (misstate_a_blob, r"blob: \[.*\]: the index gives it \d+ bytes"),
        (cut_a_blobs_id, r"blob: \w+: its index row cannot be read"),
        (put_a_blob_nowhere, r"blob: \[.*\]: it lies in pool moon, which there is not"),
        (lose_the_scheme, r"scheme: tablet 1: it is gone, though there are topics"),
        (lose_the_log_of_the_scheme, r"scheme: its log: it is empty, though there are topics"),
        (miscount_a_segment, r"segment: main/.*\.segment: \d+ bytes of it are alive, the index counts"),
        (forget_a_segment, r"segment: main/.*\.segment: blobs lie in it, but the index has no row"),
        (lose_a_commit, r"index: commits: commit \d+ is missing"),
        (add_a_strange_row, r"index: row 7a: a row of no known kind"),
        (add_a_strange_cell_row, r"index: row 7251: a row of no known kind"),
        (damage_the_mark, r"cell: scheme: ff is no mark that this version reads"),
        (damage_a_record, r"tablet: tablet \d+: its record cannot be read"),
        (retype_a_tablet, r"scheme: [\w-]+: its tablet \d+ is of type COORDINATOR"),
        (block_the_future, r"tablet: tablet \d+: generation 2 runs, though \d+ is blocked"),
        (damage_a_row, r"kv: power, key d.*: its row cannot be read"),
        (share_a_blob_unsaid, r"kv: power, key d.*: blob \[.*\] is held by 2 rows"),
        (lose_a_body, r"partition: power-1: no blob has the offsets \d+ to \d+"),
        (lose_the_meta_row, r"partition: power-2: its meta row is gone"),
        (lose_the_tail, r"partition: power-2: no blob has the offsets \d+ to 1099511627775"),
        (damage_the_meta_row, r"partition: power-2: its meta row cannot be read"),
        (write_a_session_that_is_none, r"sessions: power-0: session no: it is SessionBatch\("),
        (write_from_the_future, r"producers: power-0: producer \d+: offset 1099511627776, behind the end"),
        (open_in_the_future, r"producers: power-0: producer \d+: offset 1099511627776, behind the end"),
        (abort_in_the_future, r"transactions: power-0: the aborted transaction of key a.*: its marker is at offset"),
        (read_below_nought, r"consumers: power-0: group readers: a negative offset"),
        (add_a_strange_key, r"kv: power: key k0000000000 is of no known kind"),
        (prepare_twice, r"transactions: power-0: rows of 2 transactions are prepared"),
        (prepare_what_is_none, r"transactions: power-0: rows of transaction \d+: 1 bytes are less"),
        (prepare_for_another, r"transactions: power-0: rows of transaction \d+: it is of transaction"),
        (decide_for_another, r"transactions: power-0: decision of transaction \d+: it is of transaction"),
        (add_a_transaction_without_a_name, r"kv: power: key p0000000000_0 cannot be read"),
        (add_a_partition_too_many, r"kv: power-9: the topic has no such partition"),
        (add_a_row_of_no_tablet, r"tablet: tablet 1125899906842624: 1 rows of a tablet that has no record"),
        (break_the_log_of_the_scheme, r"scheme: its log: it cannot be replayed"),
        (damage_an_inline_blob, r"is corrupt at byte 0 \(its index row\)"),
        (change_a_record, r"records: power-\d: offsets \d+ to \d+: the batch .* does not match its checksum"),
        (move_a_batch, r"records: power-\d: offsets \d+ to \d+: the batch .* says it begins at"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_index_is_found(data: Path, change: Callable[[Index], None], told: str) -> None:
    with changed(data) as index:
        change(index)
    found = damages(data)
    assert any(re.search(told, line) for line in found), found


def test_an_aborted_transaction_is_healthy(data: Path) -> None:
    with changed(data) as index:
        put_aborted(index, 1)
    findings = Findings(lambda size: None)
    asyncio.run(examine(data, {}, findings, lambda total: None))
    assert (findings.damages, findings.seen["aborted transactions"]) == (0, 1)


def test_prepared_rows_and_a_decision_are_healthy(data: Path) -> None:
    with changed(data) as index:
        put_prepared(index, 1)
        put_decision(index, 2, of=2)
    findings = Findings(lambda size: None)
    asyncio.run(examine(data, {}, findings, lambda total: None))
    assert findings.damages == 0
    assert (findings.seen["prepared rows"], findings.seen["decisions of transactions"]) == (1, 1)
    (gone,) = [one for one in findings.found if one.check == "transactions"]
    assert (gone.weight, gone.where) == (Weight.HARMLESS, "power-0")
    assert "with the decision about them does not exist" in gone.what
    assert gone.cure == "nothing: the next start drops them"


def test_rows_that_are_committed_and_not_written_yet_are_named(data: Path) -> None:
    with changed(data) as index:
        put_prepared(index, 1)
        put_decision(index, 1, of=1)
    (left,) = [one for one in look(data) if one.check == "transactions"]
    assert f"rows of transaction {transaction(1).hex()} are prepared: it is committed" in left.what
    assert left.cure == "nothing: the next start writes them"


def test_a_flipped_byte_of_a_record_is_found_with_its_offsets(data: Path) -> None:
    with changed(data) as index:
        entry = next(entry for _, row in index.keys(b"d0000000001") if not (entry := Entry.stored(row)).is_inline)
        at = place_of(index, next(entry.blobs()))
    flip(segment_of(data, at), at.position + record_bytes(at.size) - 1)
    (found,) = damages(data)
    assert re.search(r"records: power-1: offsets \d+ to \d+: blob \w+ is corrupt at byte", found)


def test_a_flipped_byte_of_a_header_is_found(data: Path) -> None:
    with changed(data) as index:
        at = next(at for _, row in index.rows(BLOB) if (at := index_rows.location(row)))
    flip(segment_of(data, at), at.position + 5)
    assert any("header at byte" in line for line in damages(data))


def test_a_segment_that_is_gone_is_found_with_all_it_held(data: Path) -> None:
    largest = max(segments(data), key=lambda path: path.stat().st_size)
    largest.unlink()
    found = damages(data)
    assert any(line.startswith(f"segment: main/{largest.name}: the file has 0 of its") for line in found)
    assert any(line.startswith("records: power-") and "is gone" in line for line in found)


def test_a_segment_that_is_cut_short_is_found(data: Path) -> None:
    largest = max(segments(data), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size - 1)
    assert any(f"{largest.name}: the file has" in line for line in damages(data))


def test_what_a_crash_may_leave_does_no_harm(data: Path) -> None:
    with changed(data) as index:
        last = max(int.from_bytes(row, "big") for _, row in index.rows(b"n"))
    blob = BlobId(TabletId(1 << 16), 2, 9, 1, 0, 2000).key()
    left = b"".join(encode_record(blob, [bytes(2000)], 2000, last + 1, 0))
    with segments(data)[0].open("ab") as file:
        file.write(left)
    orphan = data / "blobs" / segment_name(77, 1)
    orphan.write_bytes(left)
    (found,) = look(data)
    assert (found.weight, found.check, found.where) == (Weight.HARMLESS, "segment", f"main/{orphan.name}")


def test_files_of_others_among_the_segments_are_passed_over(data: Path) -> None:
    for name in ("1-7.segment", "copy-of.segment"):
        (data / "blobs" / name).write_bytes(b"mine")
    assert look(data) == []


def test_a_segment_of_a_commit_that_the_index_lost_is_found(data: Path) -> None:
    blob = BlobId(TabletId(1 << 16), 2, 9, 1, 0, 2000).key()
    left = b"".join(encode_record(blob, [bytes(2000)], 2000, 1 << 30, 0))
    (data / "blobs" / segment_name(77, 1)).write_bytes(left)
    (found,) = damages(data)
    assert "commit 1073741824" in found
    assert "acknowledged rows are lost" in found


@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*"])
def test_a_damaged_file_of_the_index_is_told(data: Path, pattern: str) -> None:
    with changed(data):
        pass  # its log becomes a table
    index = index_path(data, index_generation(data))
    (copy,) = index.glob("copy-of-MANIFEST-*")
    kept = copy.read_bytes()
    copy.unlink()
    file = max(index.glob(pattern), key=lambda path: path.stat().st_size)
    for position in range(10, file.stat().st_size, 50):
        flip(file, position)
    with pytest.raises(EngineError, match=r"the index is damaged: .*restore a copy"):
        look(data)
    if pattern == "MANIFEST-*":
        copy.write_bytes(kept)
        (found,) = damages(data)
        assert f"{file} is damaged" in found


def test_a_damaged_log_of_the_index_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker(data, SETTINGS) as node:
        asyncio.run(load(node.kafka, Book(), random.Random(4), 25))
        node.kill()
    log = max(index_path(data, index_generation(data)).glob("commits/*.commits"))
    assert not damages(data)
    flip(log, len(log.read_bytes().rstrip(b"\0")) * 2 // 3)
    with pytest.raises(EngineError, match=r"acknowledged rows are lost; restore a copy"):
        look(data)


def test_a_directory_that_a_broker_has_is_refused(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as node:
        with pytest.raises(EngineError, match=f"in use by process {node.pid}; stop it"):
            look(tmp_path / "data")
        assert node.running


def test_a_damaged_fact_file_beside_a_whole_one_is_named(data: Path) -> None:
    (data / FACTS_FILE).write_bytes(b"{")
    assert [finding.what for finding in look(data)] == [
        f"{data / FACTS_FILE} is damaged, missing or older than {FACTS_COPY}"
    ]


def test_a_fact_file_that_a_crash_left_missing_or_older_is_harmless(data: Path) -> None:
    older = (data / FACTS_FILE).read_bytes().replace(b"{", b"{ ", 1)
    for content in (None, older):
        (data / FACTS_FILE).unlink()
        if content is not None:
            (data / FACTS_FILE).write_bytes(content)
        assert [finding.weight for finding in look(data)] == [Weight.HARMLESS]
        (data / FACTS_FILE).touch()


def test_no_broker_starts_while_the_doctor_looks(data: Path) -> None:
    with look_into(data, {}), pytest.raises(BrokerFailedError, match="in use"), broker(data):
        pass


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("cell", b"{", "cannot be read"),
        ("cell", b'{"format": 99}', "newer version"),
        ("blobs/pool", b"pqbroker pool main of cell other\n", "is not pool main of this cell"),
        ("cell", None, "cell is missing beside an index; restore"),
        ("blobs/pool", None, "pool main is not at"),
    ],
)
def test_a_directory_that_is_not_whole_is_refused(data: Path, name: str, content: bytes | None, told: str) -> None:
    if name == FACTS_FILE:
        (data / FACTS_COPY).unlink()
    if content is None:
        (data / name).unlink()
    else:
        (data / name).write_bytes(content)
    with pytest.raises(EngineError, match=told):
        look(data)


def test_the_command_tells_people_and_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(data)]) == 0
    assert f"{data}: healthy; checked" in capsys.readouterr().out
    with changed(data) as index:
        lose_a_body(index)
    assert main(["doctor", str(data)]) == 1
    said = capsys.readouterr()
    assert "no blob has the offsets" in said.out
    assert said.err == f"pqbroker: {data} is damaged: 1 thing is wrong\n"
    assert main(["doctor", str(data), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert list(told) == re.sub(r" \(.*?\)", "", KEYS["doctor"]).split(", ")
    assert KEYS["doctor"].endswith(f"({', '.join(told['findings'][0])})")
    assert (told["healthy"], told["damages"], len(told["findings"])) == (False, 1, 1 + told["harmless"])
    assert main(["doctor", str(data / "blobs")]) == 1
    assert "is no data directory" in capsys.readouterr().err


async def write_with_a_hole(data: Path) -> None:
    """A mirrored partition: offsets 0, then 10 to 12, each in a blob of its own."""
    opened = await open_cell(RocksEngine(data, segment_bytes=1 << 20), BrokerSettings(), lambda: 1_700_000_000_000)
    server = (await opened.topics.create("mirror", 1, {})).partitions[0]
    await server.write(*batch(b"a" * 2000))
    for offset in (10, 11, 12):
        await server.write_at(offset, *batch(b"b"))
    await opened.stop()
    await opened.cell.close()


def test_a_hole_that_a_mirror_left_does_no_harm(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(write_with_a_hole(data))
    (found,) = look(data)
    assert (found.weight, found.where) == (Weight.HARMLESS, "mirror-0")
    assert found.what == "no blob has the offsets 1 to 9"
    assert found.cure == "nothing, if whoever mirrored the topic left them out; else restore a copy of the directory"


@pytest.mark.parametrize(
    ("offset", "told"),
    [
        (0, "partition: mirror-0: no blob has the offsets 0 to 9"),  # its blob is there
        (11, "partition: mirror-0: no blob has the offsets 11 to 11"),  # its row alone had it, within the head
    ],
)
def test_a_hole_that_a_lost_row_left_is_damage(tmp_path: Path, offset: int, told: str) -> None:
    data = tmp_path / "data"
    asyncio.run(write_with_a_hole(data))
    with changed(data) as index:
        index.delete(index.keys(b"d0000000000_%020d" % offset)[0][0])
    assert told in damages(data)


def test_damage_is_told_first_however_much_does_no_harm() -> None:
    findings = Findings(lambda size: None)
    for number in range(FINDINGS_MAX + 1):
        findings.harmless("blob", f"[{number}]", "no row holds it")
    findings.damage("records", "power-1", "a batch is gone")
    assert findings.found[0].what == "a batch is gone"
    assert len(findings.found) == 1 + FINDINGS_MAX
    assert (findings.damages, findings.oddities) == (1, FINDINGS_MAX + 1)


def test_a_segment_that_cannot_be_read_is_damage_and_the_rest_is_looked_at(data: Path) -> None:
    largest = max(segments(data), key=lambda path: path.stat().st_size)
    largest.unlink()
    largest.mkdir()  # open, and each read of it fails, as on a bad disk
    found = damages(data)
    assert any(line.startswith("records: power-") and "cannot be read: Is a directory" in line for line in found)
    for other in segments(data):
        if other != largest:
            os.truncate(other, 0)
    assert len(damages(data)) > len(found)


def test_a_file_that_no_row_names_and_that_cannot_be_read_may_have_rounds(data: Path) -> None:
    orphan = data / "blobs" / segment_name(77, 1)
    orphan.mkdir()
    with pytest.raises(EngineError, match=f"{orphan} cannot be read: Is a directory; restore a copy"):
        look(data)


def test_what_cannot_be_looked_at_is_refused_with_cause_and_cure(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = index_path(data, index_generation(data))
    shutil.rmtree(index)
    index.touch()
    assert main(["doctor", str(data)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"pqbroker: {data} is unreadable: [Errno 20] Not a directory")
    assert told.endswith("; see that this user may read it\n")


@pytest.mark.parametrize("pattern", ["blobs/*.segment", "index-*/*.sst"])
def test_what_may_not_be_read_is_no_damage(
    data: Path, pattern: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with changed(data):
        pass  # its log becomes a table
    file = next(data.glob(pattern))
    real_open, real_access = os.open, os.access

    def refuse(path: str | Path, flags: int, *, dir_fd: int | None = None) -> int:
        if str(path) == str(file):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real_open(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(file) and real_access(path, mode))
    assert main(["doctor", str(data)]) == 1
    told = f"{data} is unreadable: [Errno 13] Permission denied: '{file}'; see that this user may read it"
    assert capsys.readouterr().err == f"pqbroker: {told}\n"


def test_a_pool_that_the_cell_does_not_have_is_refused(data: Path) -> None:
    with pytest.raises(EngineError, match="the cell has no pool moon; it has main"), look_into(data, {"moon": data}):
        pass


def test_the_command_ends_at_once_when_it_is_interrupted(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def interrupt(partition: Partition) -> None:
        looked.append(partition.name)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Partition, "check", interrupt)
    assert main(["doctor", str(data)]) == 1
    assert capsys.readouterr().err == "pqbroker: interrupted\n"
    assert len(looked) == 1


def place_of(index: Index, blob: bytes) -> Location:
    at = index_rows.location(dict(index.rows(BLOB + blob))[BLOB + blob])
    assert at is not None
    return at


def segment_of(data: Path, at: Location) -> Path:
    return data / "blobs" / segment_name(at.generation, at.sequence)


def segments(data: Path) -> list[Path]:
    return sorted((data / "blobs").glob("*.segment"))


@pytest.fixture
def no_kind_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor knows no kind of tablet by its purpose."""
    monkeypatch.setattr(tablets, "_CHECKS", {})


@pytest.mark.usefixtures("no_kind_known")
def test_a_kind_without_a_check_of_its_own_is_verified_by_its_stored_form(written: Path) -> None:
    findings = Findings(lambda size: None)
    asyncio.run(examine(written, {}, findings, lambda total: None))
    assert findings.found == []
    assert findings.seen["keys"]
    assert "partitions" not in findings.seen


@pytest.mark.usefixtures("no_kind_known")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lose_a_blob, r"kv: tablet \d+, key d.*blob \[\d+:.*\] is not there"),
        (damage_a_row, r"kv: tablet \d+, key d.*: its row cannot be read"),
        (break_the_log_of_the_scheme, r"log: tablet 1: it cannot be replayed"),
    ],
)
def test_damage_in_a_tablet_of_any_kind_is_found(data: Path, change: Callable[[Index], None], told: str) -> None:
    with changed(data) as index:
        change(index)
    assert any(re.match(told, line) for line in damages(data)), damages(data)


async def write_transactions(data: Path) -> None:
    opened = await open_cell(RocksEngine(data, segment_bytes=1 << 20), BrokerSettings(), lambda: 1_700_000_000_000)
    server = (await opened.topics.create("t", 1, {})).partitions[0]
    for number in range(3):
        await server.write(*transactional(b"a" * 3000, producer=(7, 0, number)))
        if number < 2:
            await server.end_transaction(7, 0, 0, is_commit=bool(number))
        await server.flush()
    await server.end_transaction(8, 3, 0, is_commit=True)
    await opened.stop()
    await opened.cell.close()


def test_kafka_transactions_open_aborted_and_committed_are_healthy(tmp_path: Path) -> None:
    asyncio.run(write_transactions(tmp_path / "data"))
    assert look(tmp_path / "data") == []
