"""The worker's merges by whole columns equal the plain rules of `versions.py`, read back in plain Python."""

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX, timestamp_of
from pqbroker.tables.sorted.blocks import BLOCK_BYTES_MAX
from pqbroker.tables.sorted.keys import key_encoder
from pqbroker.tables.sorted.packed_rows import ABSENT
from pqbroker.tables.sorted.versions import CleanUp, Version, clean, merge_deletes
from pqbroker.tables.work.messages import Message, Stopped
from pqbroker.tables.work.sorted.merging import KEY_MEMORY_BYTES, merge
from pqbroker.tables.work.sorted.refusal import MergeRefused
from tests.support.depth import examples
from tests.tables.work.sorted.worker_line import (
    MEMORY_BYTES,
    Pieces,
    Table,
    in_file,
    index_of,
    log_of,
    merged,
    question,
    versions_of,
)

pytestmark = pytest.mark.spec("C.4", "C.8", "K.3")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127), "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint16": st.integers(0, (1 << 16) - 1), "uint64": st.integers(0, (1 << 64) - 1),
    "double": st.floats(allow_nan=False), "boolean": st.booleans(), "string": st.binary(max_size=9),
    "utf8": st.text("a\0é😀", max_size=5), "any": st.sampled_from(["{}", "[1]"]),
    "timestamp": st.integers(0, 1 << 52),
}  # fmt: skip
KEYS = {name: values for name, values in VALUES.items() if name != "any"}
TIMES = st.integers(0, 40)
Row = tuple[Sequence[Any], int, list[Any] | None, bool]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    key = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3))
    value = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=4))
    return [[f"k{at}", kind] for at, kind in enumerate(key)], [[f"v{at}", kind] for at, kind in enumerate(value)]


@st.composite
def some_rows(draw: st.DrawFn, table: Table) -> list[Row]:
    """Rows in order of arrival, several to a key; timestamps are all different. Some fill blocks with few rows."""
    pad = draw(st.sampled_from([0, 0, 0, 20_000]))
    keys = draw(st.lists(st.tuples(*[st.none() | KEYS[kind] for _, kind in table[0]]), min_size=1, max_size=5))
    rows: list[Row] = []
    for time in sorted(draw(st.lists(TIMES, min_size=1, max_size=25, unique=True))):
        kind = draw(st.sampled_from(["write", "write", "update", "delete"]))
        absent = [st.just(ABSENT)] if kind == "update" else []
        drawn = [draw(st.one_of(st.none(), VALUES[name], *absent)) for _, name in table[1]]
        named = zip(drawn, table[1], strict=True)
        values = [each + "x" * pad if isinstance(each, str) and name == "utf8" else each for each, (_, name) in named]
        key = draw(st.sampled_from(keys))
        rows.append((key, timestamp_of(time), None if kind == "delete" else values, bool(absent)))
    return rows


@st.composite
def clean_ups(draw: st.DrawFn) -> dict[str, int]:
    least, most = sorted(draw(st.tuples(*[st.integers(0, 3)] * 2)))
    timestamps = st.integers(0, 45).map(timestamp_of)
    major = draw(timestamps)
    return {
        "now_ms": draw(TIMES), "min_data_ttl": draw(st.sampled_from([0, 5, 20])),
        "max_data_ttl": draw(st.sampled_from([0, 5, 20, 100])), "min_data_versions": least, "max_data_versions": most,
        "major": major, "retained": draw(timestamps), "hidden_before": draw(st.sampled_from([major, TIMESTAMP_MAX])),
    }  # fmt: skip


def model(table: Table, rows: Sequence[Row]) -> dict[bytes, list[Version]]:
    """Versions by key, in order, the newest first."""
    encode = key_encoder([kind for _, kind in table[0]])
    found = defaultdict(list)
    for key, timestamp, values, _ in sorted(rows, key=lambda row: -row[1]):
        found[encode(key)].append(Version(timestamp, values))
    return dict(sorted(found.items()))


def flat(found: dict[bytes, list[Version]]) -> list[tuple[bytes, Version]]:
    return [(key, version) for key, versions in found.items() for version in versions]


def read(table: Table, chunks: Sequence[bytes]) -> list[tuple[bytes, Version]]:
    return [each for chunk in chunks for each in versions_of(chunk, len(table[0]))]


def assert_key_columns_are_the_keys(table: Table, chunks: Sequence[bytes]) -> None:
    """Deletes have them too."""
    encode = key_encoder([kind for _, kind in table[0]])
    for chunk in chunks:
        index = index_of(chunk)
        for number, place in enumerate(index.places):
            block = index.block(number, chunk[place.position : place.position + place.stored_bytes])
            for row in range(block.rows):
                assert encode([block.value(row, at) for at in range(len(table[0]))]) == block.key(row)


@settings(max_examples=examples(800))
@given(st.data())
def test_a_flush_keeps_every_version_and_a_merge_what_the_rules_leave(data: st.DataObject) -> None:
    table = data.draw(tables())
    rows = data.draw(some_rows(table))
    count = data.draw(st.integers(1, 3))
    at = [data.draw(st.integers(0, count - 1)) for _ in rows]
    parts = [[row for row, number in zip(rows, at, strict=True) if number == part] for part in range(count)]
    logs = [log_of(table, part) for part in parts if part]
    chunks = [chunk for log in logs for chunk in merged(table, [log])[0]]
    assert [read(table, [chunk]) for chunk in chunks] == [flat(model(table, part)) for part in parts if part]
    rules = data.draw(clean_ups())
    assert_key_columns_are_the_keys(table, chunks)
    versions = {key: clean(some, len(table[1]), CleanUp(**rules)) for key, some in model(table, rows).items()}
    expected = flat(versions)
    from_logs = merged(table, logs, clean_up=rules)[0]
    from_chunks = merged(table, chunks=chunks, clean_up=rules)[0]
    assert read(table, from_logs) == read(table, from_chunks) == expected
    pivots = sorted(data.draw(st.sets(st.sampled_from(sorted(model(table, rows))))))
    in_parts = {
        "pivots": [pivot.hex() for pivot in pivots], "chunk_bytes_max": data.draw(st.sampled_from([1, 500, 10_000])),
        "memory_bytes_max": data.draw(st.sampled_from([1, 20_000, MEMORY_BYTES])), "clean_up": rules,
    }  # fmt: skip
    cut, said = merged(table, logs[:1], chunks[1:], **in_parts)
    assert read(table, cut) == expected
    for chunk, facts in zip(cut, said["chunks"], strict=True):
        assert {bisect_right(pivots, key) for key, _ in versions_of(chunk, 0)} == {facts["partition"]}
    alone = {key: merge_deletes(some) for key, some in model(table, rows).items()}
    assert read(table, merged(table, logs[:1], chunks[1:], merge_deletions=True)[0]) == flat(alone)


TEXTS: Table = ([["id", "int64"]], [["text", "utf8"]])
NEWEST_ALONE = {
    "now_ms": 10**12, "min_data_ttl": 0, "max_data_ttl": 0, "min_data_versions": 1, "max_data_versions": 1,
    "major": TIMESTAMP_MAX, "retained": TIMESTAMP_MAX, "hidden_before": TIMESTAMP_MAX,
}  # fmt: skip
encode = key_encoder(["int64"])


def texts(ids: Sequence[int], timestamp: int, size: int = 1000) -> list[Row]:
    """Rows of a kilobyte, which no compression shrinks, one commit each."""
    return [((one,), timestamp + at, [os.urandom(size // 2).hex()], False) for at, one in enumerate(ids)]


def test_a_merge_that_goes_range_by_range_makes_the_same_rows() -> None:
    rows = texts(range(0, 3000, 2), 1000) + texts(range(0, 3000, 3), 5000) + texts([7, 7, 7, 8], 9000)
    chunks = [merged(TEXTS, [log_of(TEXTS, part)])[0][0] for part in (rows[:1500], rows[1500:2500], rows[2500:])]
    at_once, _ = merged(TEXTS, chunks=chunks, clean_up=NEWEST_ALONE)
    in_ranges, found = merged(TEXTS, chunks=chunks, clean_up=NEWEST_ALONE, memory_bytes_max=8 << 20)
    assert len(in_ranges) == 1
    assert found["rows_read"] == len(rows)
    assert read(TEXTS, in_ranges) == read(TEXTS, at_once)
    assert len(index_of(in_ranges[0]).places) > len(index_of(at_once[0]).places), "ranges end blocks"
    assert found["chunks"][0]["rows"] == 2001


def test_pivots_make_a_chunk_for_each_partition_that_has_rows() -> None:
    rows = texts([*range(100), *range(200, 300)], 1000, 10)
    pivots = [encode((at,)) for at in (50, 100, 150, 199, 250)]
    for given_ in ({"logs": [log_of(TEXTS, rows)]}, {"chunks": merged(TEXTS, [log_of(TEXTS, rows)])[0]}):
        chunks, found = merged(TEXTS, pivots=[pivot.hex() for pivot in pivots], **given_)
        assert [facts["partition"] for facts in found["chunks"]] == [0, 1, 4, 5]
        keys = [[key for key, _ in read(TEXTS, [chunk])] for chunk in chunks]
        assert [(some[0], some[-1]) for some in keys] == [
            (encode((first,)), encode((last,))) for first, last in ((0, 49), (50, 99), (200, 249), (250, 299))
        ]
        assert [bytes.fromhex(facts["first_key"]) for facts in found["chunks"]] == [some[0] for some in keys]
        assert [bytes.fromhex(facts["last_key"]) for facts in found["chunks"]] == [some[-1] for some in keys]


def test_a_chunk_of_its_greatest_size_ends_before_the_next_key() -> None:
    rows = texts([1] * 300 + [2] * 20 + [3] * 300, 1000)
    chunks, _ = merged(TEXTS, [log_of(TEXTS, rows)], chunk_bytes_max=100_000)
    counts = [[key for key, _ in read(TEXTS, [chunk])] for chunk in chunks]
    found = [[(key, keys.count(key)) for key in dict.fromkeys(keys)] for keys in counts]
    assert found[0] == [(encode((1,)), 300)], "its versions stay together"
    assert [pair for some in found for pair in some] == [(encode((at,)), n) for at, n in ((1, 300), (2, 20), (3, 300))]


def test_a_chunk_has_no_more_keys_than_the_memory_bears() -> None:
    rows = texts(range(2000), 1000, 2)
    chunks, found = merged(TEXTS, [log_of(TEXTS, rows)], memory_bytes_max=700 * KEY_MEMORY_BYTES)
    assert 2 <= len(chunks) <= 3
    assert sum(facts["keys"] for facts in found["chunks"]) == len(read(TEXTS, chunks)) == 2000


@pytest.mark.parametrize(
    ("kind", "values", "cure"),
    [("write", ["x"], {"clean_up": NEWEST_ALONE}), ("delete", None, {"merge_deletions": True})],
)
def test_a_key_with_too_many_versions_is_refused_and_the_cure_helps(kind: str, values: Any, cure: Any) -> None:
    rows = [((one,), 1 + at, values, False) for one in (1, 2) for at in range(31 if one == 2 else 30)]
    log = log_of(TEXTS, sorted(rows, key=lambda row: row[1]))
    text = f"^Too many {kind} timestamps in a versioned row: 31; .* key is \\[2\\]"
    with pytest.raises(MergeRefused, match=text) as no:
        merged(TEXTS, [log], versions_max=30)
    assert no.value.document()["code"] == "TOO_MANY_VERSIONS"
    assert "merge_rows_on_flush" in no.value.cure
    assert len(read(TEXTS, merged(TEXTS, [log], versions_max=30, **cure)[0])) == 2
    assert len(read(TEXTS, merged(TEXTS, [log], versions_max=31)[0])) == 61


def test_versions_that_all_go_leave_no_chunk() -> None:
    rows: list[Row] = [((1,), 10, ["x"], False), ((1,), 20, None, False)]
    chunks, found = merged(TEXTS, [log_of(TEXTS, rows)], clean_up=NEWEST_ALONE)
    assert (chunks, found["chunks"], found["rows_read"]) == ([], [], 2)


def test_what_was_written_before_a_table_got_columns_and_wider_types_is_merged() -> None:
    old: Table = ([["id", "int64"]], [["number", "int8"]])
    new: Table = ([["id", "int64"]], [["number", "int32"], ["text", "utf8"]])
    before: list[Row] = [((1,), 10, [-5], False), ((2,), 11, [6], False), ((2,), 12, [7], True)]
    after: list[Row] = [((1,), 20, [70_000, ABSENT], True), ((2,), 21, [ABSENT, "b"], True)]
    chunk = merged(old, [log_of(old, before)])[0][0]
    from_chunk = read(new, merged(new, [log_of(new, after)], [chunk])[0])
    assert [(version.timestamp, version.values) for _, version in from_chunk] == [
        (20, [70_000, ABSENT]), (10, [-5, ABSENT]), (21, [ABSENT, "b"]), (12, [7, ABSENT]), (11, [6, ABSENT]),
    ]  # fmt: skip
    from_log = read(new, merged(new, [log_of(old, before) + log_of(new, after)])[0])
    assert [(version.timestamp, version.values) for _, version in from_log] == [
        (20, [70_000, ABSENT]), (10, [-5, None]), (21, [ABSENT, "b"]), (12, [7, ABSENT]), (11, [6, None]),
    ]  # fmt: skip


def test_inputs_lie_in_files_in_pieces_and_in_the_payload(tmp_path: Path) -> None:
    rows = texts(range(300), 1000)
    (chunk,) = merged(TEXTS, [log_of(TEXTS, rows[:200])])[0]
    log = log_of(TEXTS, rows[200:])
    line = Pieces()
    inputs = [
        in_file(tmp_path / "chunk", chunk),
        {"kind": "log", "pieces": [len(log)]},
        in_file(tmp_path / "log", log, "log"),
    ]
    merge(line, Message("merge", question(TEXTS, inputs), log))
    assert len(read(TEXTS, [bytes(part) for part in line.chunks])) == 400


@pytest.mark.parametrize("lost", ["gone", "short"])
def test_a_file_that_is_gone_or_short_is_named_with_its_input(tmp_path: Path, lost: str) -> None:
    (chunk,) = merged(TEXTS, [log_of(TEXTS, texts(range(300), 1000))])[0]
    inputs = [in_file(tmp_path / name, chunk) for name in ("first", "second")]
    if lost == "gone":
        (tmp_path / "second").unlink()
    else:
        os.truncate(tmp_path / "second", 100)
    with pytest.raises(MergeRefused) as refusal:
        merge(Pieces(), Message("merge", question(TEXTS, inputs), b""))
    assert (refusal.value.code, refusal.value.input_number) == ("INPUT_GONE", 1)


def test_a_damaged_chunk_is_named_by_its_input_wherever_the_damage_lies() -> None:
    chunks = [merged(TEXTS, [log_of(TEXTS, texts([at], 1000, 10))])[0][0] for at in (1, 2)]
    for position in range(len(chunks[1])):
        damaged = bytearray(chunks[1])
        damaged[position] ^= 0x81
        with pytest.raises(MergeRefused) as refusal:
            merged(TEXTS, chunks=[chunks[0], bytes(damaged)])
        assert (refusal.value.code, refusal.value.input_number) == ("INPUT_DAMAGED", 1)


def test_a_damaged_log_is_refused_or_has_other_values() -> None:
    """Blobs guard values by checksums of their own; lengths that do not fit are found besides."""
    table: Table = ([["id", "int64"], ["name", "utf8"]], [["text", "utf8"], ["number", "int8"]])
    rows: list[Row] = [((1, "a"), 5, ["x", 1], False), ((2, None), 6, [None, ABSENT], True)]
    rows.append(((2, "b"), 7, None, False))
    log = log_of(table, rows)
    codes = []
    for position in range(len(log)):
        for bits in (0xFF, 0x01, 0x80):
            damaged = bytearray(log)
            damaged[position] ^= bits
            try:
                merged(table, [log, bytes(damaged)])
            except MergeRefused as refusal:
                codes.append(refusal.code)
    first_entry = log_of(table, rows[:1])
    assert log.startswith(first_entry)
    for end in {*range(1, len(log))} - {len(first_entry)}:
        with pytest.raises(MergeRefused):
            merged(table, [log[:end]])
    assert set(codes) == {"INPUT_DAMAGED"}
    assert len(codes) > len(log)


def test_a_chunk_of_another_table_is_refused() -> None:
    (chunk,) = merged(TEXTS, [log_of(TEXTS, texts([1], 1))])[0]
    other: Table = ([["id", "int64"]], [["other", "utf8"]])
    with pytest.raises(MergeRefused, match="columns id, text, the table id, other"):
        merged(other, chunks=[chunk])


def open_files() -> Iterator[str]:
    """Yield the paths of what this process has open."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists them
            yield os.readlink(f"/proc/self/fd/{name}")


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_merge_stops_between_two_pieces_and_has_no_file_open(tmp_path: Path, after: int) -> None:
    (chunk,) = merged(TEXTS, [log_of(TEXTS, texts(range(4000), 1000))])[0]
    inputs = [in_file(tmp_path / "chunk", chunk)]
    line = Pieces(lambda sent: sent >= after)
    with pytest.raises(Stopped):
        merge(line, Message("merge", question(TEXTS, inputs), b""))
    assert sum(map(len, line.chunks)) == after << 20
    assert str(tmp_path / "chunk") not in open_files()


def test_samples_are_some_keys_about_evenly_apart() -> None:
    (chunk,), found = merged(TEXTS, [log_of(TEXTS, texts(range(4000), 1000))], samples_max=10)
    samples = found["chunks"][0]["samples"]
    assert samples == index_of(chunk).facts.samples
    keys = [bytes.fromhex(key) for key, _ in samples]
    weights = [weight for _, weight in samples]
    assert 5 <= len(samples) <= 10
    assert keys[0] == encode((0,))
    assert keys == sorted(keys)
    assert max(weights[:-1]) < 1.1 * min(weights[:-1])
    assert 4000 * 1000 < sum(weights) < 4000 * 1200
    few = merged(TEXTS, [log_of(TEXTS, texts([1, 1, 2, 3], 1000))], samples_max=10)[1]["chunks"][0]["samples"]
    assert [key for key, _ in few] == [encode((at,)).hex() for at in (1, 2, 3)]


def test_blocks_have_at_most_64_kib_of_however_many_columns() -> None:
    for count in (0, 1, 200, 1000):
        table: Table = ([["id", "int64"]], [[f"c{at}", ("int64", "utf8", "boolean")[at % 3]] for at in range(count)])
        values = [(at, str(at), None)[at % 3] for at in range(count)]
        rows: list[Row] = [((at,), 1 + at, values, False) for at in range(100)]
        (chunk,), _ = merged(table, [log_of(table, rows)])
        places = list(index_of(chunk).places)
        assert max(place.unpacked_bytes for place in places) <= BLOCK_BYTES_MAX
        assert sum(place.rows for place in places) == 100
        assert min(place.rows for place in places[:-1] or places) > 1
        assert read(table, [chunk])[99][1].values == values
