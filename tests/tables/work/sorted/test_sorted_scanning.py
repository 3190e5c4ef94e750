"""Scans of sorted tables see what the plain rule sees, whatever overlaps."""

from collections.abc import Sequence
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX, timestamp_of
from pqbroker.tables.sorted.chunks import Trait
from pqbroker.tables.sorted.keys import key_decoder, key_encoder
from pqbroker.tables.sorted.packed_rows import ABSENT
from pqbroker.tables.sorted.versions import seen
from pqbroker.tables.work.messages import Message, Stopped
from pqbroker.tables.work.sorted.merging import open_runs
from pqbroker.tables.work.sorted.scanning import SortedScan, answer_scan, scan_rows
from pqbroker.tables.work.sorted.stored_values import StoredFiles
from pqbroker.tables.work.sorted.version_columns import SortedShape
from tests.support.depth import examples
from tests.tables.work.sorted.test_merging import Row, model, some_rows, tables, texts
from tests.tables.work.sorted.worker_line import MEMORY_BYTES, Pieces, Table, index_of, log_of, merged

pytestmark = pytest.mark.spec("C.1")
TEXTS: Table = ([["id", "int64"]], [["text", "utf8"]])
encode = key_encoder(["int64"])


class Results(Pieces):
    """Keeps an answer's bytes."""

    def __init__(self, stop_after: int = 1 << 30) -> None:
        super().__init__()
        self.answer = b""
        self.asked = 0
        self.stop_after = stop_after

    def send(self, kind: str, document: Any, payload: Any = b"") -> None:
        assert kind == "result"
        self.answer += payload

    def has_unasked(self) -> bool:
        self.asked += 1
        return self.asked > self.stop_after


def scanned(
    table: Table, logs: Sequence[bytes], chunks: Sequence[bytes], line: Results | None = None, **others: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of an answer, and what is said of it."""
    inputs = [{"kind": "log", "pieces": [len(log)]} for log in logs]
    inputs += [{"kind": "chunk", "pieces": [len(chunk)]} for chunk in chunks]
    document = {
        "schema": {"key": table[0], "value": table[1]}, "inputs": inputs, "timestamp": TIMESTAMP_MAX, "first": "",
        "end": None, "columns": [name for name, _ in table[0] + table[1]], "format": "arrow", "rows_max": None,
        "memory_bytes_max": MEMORY_BYTES, **others,
    }  # fmt: skip
    line = line or Results()
    said = answer_scan(line, Message("scan", document, b"".join([*logs, *chunks])))
    with pyarrow.ipc.open_stream(line.answer) as stream:
        return stream.read_all().to_pylist(), said


@settings(max_examples=examples(800))
@given(st.data())
def test_a_scan_sees_the_newest_values_at_its_timestamp(data: st.DataObject) -> None:
    table = data.draw(tables())
    table = (table[0], [[name, "int64" if kind in ("any", "timestamp") else kind] for name, kind in table[1]])
    table = ([[name, "uint64" if kind == "timestamp" else kind] for name, kind in table[0]], table[1])
    rows = data.draw(some_rows(table))
    at = [data.draw(st.integers(0, 3)) for _ in rows]
    logs = [log_of(table, some) for part in (0, 1) if (some := parted(rows, at, part))]
    flushed = [log_of(table, some) for part in (2, 3) if (some := parted(rows, at, part))]
    chunks = [chunk for log in flushed for chunk in merged(table, [log])[0]]
    timestamp = timestamp_of(data.draw(st.integers(0, 41)))
    keys = sorted(model(table, rows))
    first, end = data.draw(st.sampled_from([b"", *keys])), data.draw(st.sampled_from([None, *keys]))
    names = [name for name, _ in table[0] + table[1]]
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    expected = model_rows(table, rows, timestamp, (first, end))
    found, said = scanned(
        table, logs, chunks, timestamp=timestamp, first=first.hex(), end=None if end is None else end.hex(),
        columns=wanted,
    )  # fmt: skip
    assert found == [{name: row[name] for name in wanted} for row in expected]
    assert said["rows"] == len(found)


def parted(rows: Sequence[Row], at: Sequence[int], part: int) -> list[Row]:
    return [row for row, number in zip(rows, at, strict=True) if number == part]


def model_rows(
    table: Table, rows: Sequence[Row], timestamp: int, bounds: tuple[bytes, bytes | None]
) -> list[dict[str, Any]]:
    decode = key_decoder([kind for _, kind in table[0]])
    names = [name for name, _ in table[0] + table[1]]
    found = []
    for key, versions in model(table, rows).items():
        values = seen(versions, timestamp, range(len(table[1])))
        if values is not None and key >= bounds[0] and (bounds[1] is None or key < bounds[1]):
            found.append(dict(zip(names, [*decode(key), *values], strict=True)))
    return found


def test_blocks_that_nothing_reaches_into_are_taken_as_they_stand_beside_others() -> None:
    """Chunks overlap in part, one has deletes, the log has a few keys; order or not, the rows are the same."""
    rows = texts(range(2000), 1000, 300) + texts(range(1500, 3500), 5000, 300) + texts(range(6000, 9000), 9000, 300)
    gone: list[Row] = [((at,), 20_000 + at, None, False) for at in range(6500, 6600)]
    parts = (rows[:2000], rows[2000:4000], rows[4000:] + gone)
    chunks = [merged(TEXTS, [log_of(TEXTS, part)])[0][0] for part in parts]
    log_rows = texts([-5, 3, 4000, 8000], 30_000, 10)
    expected = model_rows(TEXTS, [*rows, *gone, *log_rows], TIMESTAMP_MAX, (b"", None))
    found, said = scanned(TEXTS, [log_of(TEXTS, log_rows)], chunks)
    assert found == expected
    assert said["blocks"] <= said["blocks_read"] < said["blocks"] + 20, "few blocks are read for two ranges"
    shape = SortedShape.read({"key": TEXTS[0], "value": TEXTS[1]})
    inputs = [{"kind": "chunk", "pieces": [len(chunk)]} for chunk in chunks]
    with StoredFiles() as files:
        runs = open_runs(inputs, memoryview(b"".join(chunks)), files, shape, (0, 1))
        batches = list(scan_rows(runs, SortedScan(shape, (0, 1), TIMESTAMP_MAX, is_ordered=False)))
    unordered = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(unordered, key=lambda row: row["id"]) == model_rows(
        TEXTS, [*rows, *gone], TIMESTAMP_MAX, (b"", None)
    )


def test_a_block_whose_last_key_goes_on_in_the_next_one_is_not_taken_alone() -> None:
    rows = texts([1, 2], 1000, 50_000) + texts([2], 2000, 12_000) + texts([3], 3000, 10)
    (chunk,) = merged(TEXTS, [log_of(TEXTS, rows)])[0]
    places = [(place.rows, place.traits) for place in index_of(chunk).places]
    assert places == [(2, 0), (2, Trait.CONTINUES)]
    assert scanned(TEXTS, [], [chunk])[0] == model_rows(TEXTS, rows, TIMESTAMP_MAX, (b"", None))


def test_a_range_reads_only_the_blocks_that_may_have_its_keys() -> None:
    chunks = merged(TEXTS, [log_of(TEXTS, texts(range(5000), 1000, 300))])[0]
    found, said = scanned(TEXTS, [], chunks, first=encode((2000,)).hex(), end=encode((2010,)).hex())
    assert [row["id"] for row in found] == list(range(2000, 2010))
    assert said["blocks"] > 20
    assert said["blocks_read"] <= 2
    found, said = scanned(TEXTS, [], chunks, first=encode((6000,)).hex())
    assert (found, said["blocks_read"]) == ([], 0)


def test_a_chunk_newer_than_the_timestamp_is_read_version_by_version() -> None:
    chunks = merged(TEXTS, [log_of(TEXTS, texts(range(10), 1000, 10))])[0]
    assert [row["id"] for row in scanned(TEXTS, [], chunks, timestamp=1004)[0]] == list(range(5))
    assert scanned(TEXTS, [], chunks, timestamp=999)[0] == []


def test_documents_and_timestamps_have_the_types_that_sql_knows() -> None:
    table: Table = ([["at", "timestamp"]], [["document", "any"]])
    rows: list[Row] = [((1_000_000,), 5, ['{"a":1}'], False), ((2_000_000,), 6, [None], False)]
    log = log_of(table, rows)
    found, _ = scanned(table, [log], merged(table, [log])[0])
    assert [row["at"].isoformat() for row in found] == ["1970-01-01T00:00:01", "1970-01-01T00:00:02"]
    assert [row["document"] for row in found] == ['{"a":1}', None]
    line = Results()
    with pytest.raises(pyarrow.ArrowInvalid):
        scanned(table, [], merged(table, [log])[0], line, format="json")
    assert line.answer.splitlines()[0] == b'{"at":"1970-01-01T00:00:01","document":{"a":1}}'


def test_a_scan_ends_at_its_greatest_number_of_rows() -> None:
    chunks = merged(TEXTS, [log_of(TEXTS, texts(range(50_000), 1000, 2))])[0]
    for rows_max in (0, 1, 20_000, 60_000):
        found, said = scanned(TEXTS, [], chunks, rows_max=rows_max)
        assert len(found) == said["rows"] == min(rows_max, 50_000)


def test_a_scan_stops_between_batches() -> None:
    chunks = merged(TEXTS, [log_of(TEXTS, texts(range(50_000), 1000, 2))])[0]
    with pytest.raises(Stopped):
        scanned(TEXTS, [], chunks, Results(stop_after=1))


def test_rows_whose_columns_were_written_apart_are_put_together() -> None:
    table: Table = ([["id", "int64"]], [["a", "int64"], ["b", "utf8"]])
    rows: list[Row] = [
        ((1,), 10, [1, "x"], False), ((1,), 20, [2, ABSENT], True), ((2,), 21, [ABSENT, "y"], True),
        ((3,), 22, [7, "z"], False), ((3,), 30, None, False), ((3,), 40, [ABSENT, None], True),
    ]  # fmt: skip
    found, _ = scanned(table, [log_of(table, rows[3:])], merged(table, [log_of(table, rows[:3])])[0])
    assert found == [{"id": 1, "a": 2, "b": "x"}, {"id": 2, "a": None, "b": "y"}, {"id": 3, "a": None, "b": None}]
