"""The doctor finds damage of a sorted tablet and names table and keys; a broker serves all other keys meanwhile."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.segments import segment_name
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.tables.serving.chunk_records import encode_pivots
from pqbroker.tables.serving.stored_keys import (
    LETTERS_KEY,
    decision_key,
    feed_key,
    log_key,
    piece_key,
    prepared_key,
)
from pqbroker.tables.sorted.keys import key_encoder
from pqbroker.tables.sorted.log_entries import NewRow, encode_entry
from pqbroker.tables.sorted.packed_rows import DELETED
from pqbroker.testing import broker
from tests.doctor.test_doctor import BLOB, Index, changed, damages, look
from tests.faults.test_flipped_bytes import flip

SETTINGS = {"pqbroker.segment.bytes": str(1 << 20), "pqbroker.ballast.bytes": "0"}
SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending", "required": True}, {"name": "text", "type": "utf8"},
]  # fmt: skip
PATH = "/v1/tables/books"
ROWS = 3000
"""In chunks, of each of the two tablets half."""
LOGGED = 100
KEY = key_encoder(["int64"])
TRANSACTION = TransactionId(b"t" * 16)
NEVER = (1 << 63) - 1
"""A store's number that no test reaches."""


def text_of(number: int) -> str:
    """Text that compresses badly, so that a chunk has many pages."""
    return "".join(chr(33 + (number * 7919 + place * place * 31 + place) % 90) for place in range(150))


@contextmanager
def serving(data: Path) -> Iterator[HttpCalls]:
    with broker(data, SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        yield calls


def insert(calls: HttpCalls, first: int, end: int) -> None:
    for begin in range(first, end, 500):
        rows = [{"id": number, "text": text_of(number)} for number in range(begin, min(begin + 500, end))]
        calls.ask("POST", f"{PATH}/rows", {"rows": rows})


def found(calls: HttpCalls, *numbers: int) -> list[Any]:
    rows = calls.ask("POST", f"{PATH}/lookup", {"keys": [{"id": number} for number in numbers]})["rows"]
    return [row and row["text"] for row in rows]


def await_tablets(calls: HttpCalls, *numbers: int) -> None:
    """Look keys up until their tablets have read their logs."""
    while True:
        try:
            found(calls, *numbers)
        except BrokerRefusedError as refusal:
            if refusal.code != "TABLET_STARTING":
                return
        else:
            return


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped broker's directory: two tablets with a chunk each, and rows in their logs."""
    data = tmp_path_factory.mktemp("sorted") / "data"
    with serving(data) as calls:
        calls.ask("POST", "/v1/tables", {"path": "//books", "schema": SCHEMA, "pivot_keys": [[], [ROWS // 2]]})
        insert(calls, 0, ROWS)
        for verb in ("freeze", "unfreeze"):
            calls.ask("POST", f"{PATH}/{verb}", {})
        insert(calls, 0, LOGGED)
        calls.ask("DELETE", f"{PATH}/rows", {"keys": [{"id": ROWS - 1}]})
    return data


@pytest.fixture
def data(stored: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stored, tmp_path / "data")


def test_a_healthy_sorted_table_is_healthy_and_all_of_it_was_read(stored: Path) -> None:
    assert look(stored) == []


def rewritten(index: Index, key: bytes, value: bytes) -> None:
    index.put(key, Entry.inline(1, [value], len(value)).row)


def misstate_a_chunk(index: Index) -> None:
    key, row = index.keys(b"c")[0]
    record = msgspec.json.decode(Entry.stored(row).value)
    rewritten(index, key, msgspec.json.encode({**record, "rows": record["rows"] + 1}))


def lose_a_record(index: Index) -> None:
    index.delete(index.keys(b"c")[0][0])


def lose_a_chunk(index: Index) -> None:
    index.delete(index.keys(b"d")[0][0])


def spoil_a_record(index: Index) -> None:
    rewritten(index, index.keys(b"c")[1][0], b"{}")


def exchange_chunks(index: Index) -> None:
    (first, row), (second, other) = index.keys(b"c")
    index.put(first, other)
    index.put(second, row)


def spoil_the_facts(index: Index) -> None:
    rewritten(index, prefix(index) + b"f", b'{"retained_timestamp": 1, "format": 7}')


def move_a_pivot(index: Index) -> None:
    rewritten(index, prefix(index) + b"p", encode_pivots([b"", KEY([ROWS])]))


def spoil_an_entry(index: Index) -> None:
    rewritten(index, prefix(index) + log_key(NEVER, 0), b"PQL7" + bytes(12))


def entry_of(number: int, timestamp: int) -> bytes:
    return encode_entry(1, [(timestamp, [NewRow(KEY([number]), DELETED)])])


def log_another_tablets_key(index: Index) -> None:
    rewritten(index, prefix(index) + log_key(NEVER, 0), entry_of(ROWS, 5))


def log_out_of_order(index: Index) -> None:
    rewritten(index, prefix(index) + log_key(NEVER, 0), entry_of(7, 5) + entry_of(7, 5))


def log_the_future(index: Index) -> None:
    rewritten(index, prefix(index) + log_key(NEVER, 0), entry_of(7, (1 << 64) - 1))


def put_a_strange_key(index: Index) -> None:
    rewritten(index, prefix(index) + b"q", b"x")


def spoil_the_progress(index: Index) -> None:
    rewritten(index, prefix(index) + feed_key(0), b"short")


def spoil_the_dead_letters(index: Index) -> None:
    rewritten(index, prefix(index) + LETTERS_KEY, b"[]")


def prepared(number: int, timestamp: int = 0, least_timestamp: int = 1) -> bytes:
    head = PreparedHead(TRANSACTION, ParticipantId(TabletId(9)), least_timestamp, 1)
    return head.encode() + encode_entry(1, [(timestamp, [NewRow(KEY([number]), DELETED)])])


def decision(timestamp: int) -> bytes:
    return CommitDecision(TRANSACTION, timestamp, 1, bytes(16), 1, [ParticipantId(TabletId(9), 2)]).encode()


def prepare_another_tablets_key(index: Index) -> None:
    rewritten(index, prefix(index) + prepared_key(TRANSACTION), prepared(ROWS))


def prepare_rows_with_timestamps(index: Index) -> None:
    rewritten(index, prefix(index) + prepared_key(TRANSACTION), prepared(7, 5))


def prepare_in_the_future(index: Index) -> None:
    rewritten(index, prefix(index) + prepared_key(TRANSACTION), prepared(7, 0, (1 << 64) - 1))


def prepare_nothing(index: Index) -> None:
    rewritten(index, prefix(index) + prepared_key(TRANSACTION), prepared(7)[:48])


def prepare_under_another_key(index: Index) -> None:
    rewritten(index, prefix(index) + prepared_key(TransactionId(b"o" * 16)), prepared(7))


def decide_under_another_key(index: Index) -> None:
    rewritten(index, prefix(index) + decision_key(TransactionId(b"o" * 16)), decision(5))


def decide_in_the_future(index: Index) -> None:
    rewritten(index, prefix(index) + decision_key(TRANSACTION), decision((1 << 64) - 1))


def spoil_a_decision(index: Index) -> None:
    rewritten(index, prefix(index) + decision_key(TRANSACTION), decision(5)[:-1])


def prefix(index: Index) -> bytes:
    """Return what the keys of the first tablet begin with."""
    return index.keys(b"c")[0][0][:10]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (misstate_a_chunk, "chunk N, keys from [0] to [1499]: its record says rows 1501, its index 1500"),
        (lose_a_record, "books, tablet 0, its chunks: chunk N has no record"),
        (lose_a_chunk, "books, tablet 0, chunk N, keys from [0] to [1499]: its bytes are not there"),
        (spoil_a_record, "books, tablet 1, the record of chunk N: Object missing"),
        (exchange_chunks, "books, tablet 0, chunk N, keys from [1500] to [2999]: its keys belong to another tablet"),
        (spoil_the_facts, "books, tablet 0, its facts: facts of a sorted tablet have format 7"),
        (move_a_pivot, "books, tablet 0, its facts: pivots from"),
        (spoil_an_entry, f"books, tablet 0, entry 0 of store {NEVER} of its log: an entry begins with 50514c37"),
        (log_another_tablets_key, "key [3000] belongs to another tablet; the tablet is not served"),
        (log_out_of_order, "key [7] has timestamp 5 behind 5"),
        (log_the_future, "of key [7] is not reserved"),
        (spoil_the_progress, "tablet 0, its progress in the topic that feeds it: progress of a feed has 5 bytes; 24"),
        (spoil_the_dead_letters, "tablet 0, its progress in the topic that feeds it: Expected `object`, got `array`"),
        (prepare_another_tablets_key, f"under key 78{TRANSACTION.hex()}: key [3000] belongs to another tablet"),
        (prepare_rows_with_timestamps, "key [7] has a timestamp; the tablet is not served"),
        (prepare_in_the_future, "their least timestamp 18446744073709551615 is not reserved"),
        (prepare_nothing, "there is no row; the tablet is not served"),
        (prepare_under_another_key, f"they are of transaction {TRANSACTION.hex()}"),
        (decide_under_another_key, f"it is of transaction {TRANSACTION.hex()}"),
        (decide_in_the_future, "its timestamp 18446744073709551615 is not reserved"),
        (spoil_a_decision, f"under key 79{TRANSACTION.hex()}: a decision with 1 participants has 71 bytes"),
        (put_a_strange_key, "books, tablet 0, key 71: no version of the table has such a key"),
    ],
)  # fmt: skip
def test_damage_is_named_by_table_and_keys(data: Path, spoil: Callable[[Index], None], told: str) -> None:
    with changed(data) as index:
        spoil(index)
    named = [re.sub(r"chunk [0-9a-f]+", "chunk N", line) for line in damages(data)]
    assert any(told in line for line in named), named


def test_what_a_task_has_staged_is_no_data_and_harmless(data: Path) -> None:
    with changed(data) as index:
        rewritten(index, prefix(index) + piece_key(9, 0), b"half a chunk")
    (finding,) = look(data)
    assert (finding.where, finding.what) == ("books, tablet 0", "1 pieces are staged by tasks that did not end")
    with serving(data) as calls:
        await_tablets(calls, 0, ROWS - 2)
    assert look(data) == []


def test_progress_of_a_feed_is_known_by_its_keys(data: Path) -> None:
    with changed(data) as index:
        rewritten(index, prefix(index) + feed_key(3), bytes(24))
        rewritten(index, prefix(index) + b"e", b'{"run":"00","count":1,"last":[[0,1,"no key"]]}')
    assert look(data) == []


def test_prepared_rows_and_decisions_are_known_by_their_keys(data: Path) -> None:
    with changed(data) as index:
        rewritten(index, prefix(index) + prepared_key(TRANSACTION), prepared(7))
        rewritten(index, prefix(index) + decision_key(TRANSACTION), decision(5))
    (left,) = look(data)
    assert "it is committed, and they are not written yet" in str(left)


def flip_a_chunk(data: Path) -> None:
    """Change a bit in the middle of the first tablet's chunk."""
    with changed(data) as index:
        blob = next(Entry.stored(index.keys(b"d")[0][1]).blobs())
        (row,) = [row for key, row in index.rows(BLOB) if key[1:] == blob]
        at = index_rows.location(row)
    assert at is not None
    path = data / "blobs" / segment_name(at.generation, at.sequence)
    flip(path, at.position + at.size // 2)


def is_damaged(calls: HttpCalls, number: int) -> bool:
    """Return True if a row is unreadable, which its refusal says; else it is read."""
    try:
        rows = found(calls, number)
    except BrokerRefusedError as refusal:
        told = str(refusal)
    else:
        assert rows == [text_of(number)]
        return False
    assert "CHUNK_DAMAGED: rows with keys from [0] to [1499] are unreadable: chunk" in told
    return True


def test_a_damaged_chunk_costs_its_keys_alone_and_is_named(data: Path) -> None:
    """Rows of its other pages are read, and writes go on."""
    flip_a_chunk(data)
    named = damages(data)
    wanted = re.compile(r"sorted: books, tablet 0, chunk \d+, keys from \[0\] to \[1499\]: blob")
    assert any(map(wanted.match, named)), named
    with serving(data) as calls:
        await_tablets(calls, 0, ROWS - 2)
        lost = [number for number in range(LOGGED, ROWS, 50) if is_damaged(calls, number)]
        assert lost
        assert all(number < ROWS // 2 for number in lost)
        assert len(lost) < ROWS // 2 // 50, "pages that are whole are read"
        insert(calls, 0, LOGGED)
        assert found(calls, 5, ROWS - 1) == [text_of(5), None]


def test_a_damaged_log_entry_takes_its_tablet_offline_and_no_other(data: Path) -> None:
    with changed(data) as index:
        spoil_an_entry(index)
    with serving(data) as calls:
        await_tablets(calls, ROWS - 2)
        await_tablets(calls, 0)
        with pytest.raises(BrokerRefusedError, match=r"TABLET_NOT_OPEN.*an entry begins with 50514c37"):
            found(calls, 0)
        assert found(calls, ROWS - 2, ROWS - 1) == [text_of(ROWS - 2), None]
        calls.ask("POST", f"{PATH}/rows", {"rows": [{"id": ROWS - 1, "text": "again"}]})
    with changed(data) as index:
        index.delete(prefix(index) + log_key(NEVER, 0))
    with serving(data) as calls:
        await_tablets(calls, 0, ROWS - 1)
        assert found(calls, 0, ROWS - 1) == [text_of(0), "again"]


def test_a_log_that_rots_under_a_broker_comes_into_no_chunk(tmp_path: Path) -> None:
    """A flush reads what memory has and a disk lost: it fails, and lookups have the rows that were written."""
    data = tmp_path / "data"
    with serving(data) as calls:
        calls.ask("POST", "/v1/tables", {"path": "//books", "schema": SCHEMA})
        insert(calls, 0, 500)
        files = [path for path in data.rglob("*") if path.is_file()]
        marks = [(path, path.read_bytes().find(text_of(250).encode())) for path in files]
        rotten = [(path, at) for path, at in marks if at >= 0]
        assert rotten, [*data.rglob("*")]
        for path, at in rotten:
            flip(path, at + 5)
        due = {"dynamic_store_auto_flush_period": 1000, "dynamic_store_flush_period_splay": 0}
        calls.ask("PATCH", PATH, {"attributes": due})
        calls.ask("POST", f"{PATH}/remount", {})
        failed = None
        while failed is None:
            (tablet,) = calls.ask("GET", f"{PATH}/inside")["tablets"]
            failed = tablet["flush_failure"]
        assert "is corrupt at byte" in failed["cause"]
        assert found(calls, 249, 250, 251) == [text_of(number) for number in (249, 250, 251)]
