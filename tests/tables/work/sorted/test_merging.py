"""The worker's merges by whole columns equal the plain rules of `versions.py`, read back in plain Python."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.tables.sorted.blocks import BLOCK_BYTES_MAX
from pqbroker.tables.sorted.keys import key_encoder
from pqbroker.tables.sorted.packed_rows import ABSENT
from pqbroker.tables.sorted.versions import TIMESTAMP_END, CleanUp, Version, clean, merge_deletes
from tests.support.depth import examples
from tests.tables.work.sorted.worker_line import Table, index_of, log_of, merged, versions_of

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
    """Rows in order of arrival, several to a key; timestamps are all different."""
    keys = draw(st.lists(st.tuples(*[st.none() | KEYS[kind] for _, kind in table[0]]), min_size=1, max_size=5))
    rows: list[Row] = []
    for time in sorted(draw(st.lists(TIMES, min_size=1, max_size=25, unique=True))):
        kind = draw(st.sampled_from(["write", "write", "update", "delete"]))
        absent = [st.just(ABSENT)] if kind == "update" else []
        values = [draw(st.one_of(st.none(), VALUES[name], *absent)) for _, name in table[1]]
        rows.append((draw(st.sampled_from(keys)), timestamp_of(time), None if kind == "delete" else values, bool(absent)))
    return rows


@st.composite
def clean_ups(draw: st.DrawFn) -> dict[str, int]:
    least, most = sorted(draw(st.tuples(*[st.integers(0, 3)] * 2)))
    timestamps = st.integers(0, 45).map(timestamp_of)
    major = draw(timestamps)
    return {
        "now_ms": draw(TIMES), "min_data_ttl": draw(st.sampled_from([0, 5, 20])),
        "max_data_ttl": draw(st.sampled_from([0, 5, 20, 100])), "min_data_versions": least, "max_data_versions": most,
        "major": major, "retained": draw(timestamps), "hidden_before": draw(st.sampled_from([major, TIMESTAMP_END])),
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


@settings(max_examples=examples(1500))
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
    versions = {key: clean(some, len(table[1]), CleanUp(**rules)) for key, some in model(table, rows).items()}
    expected = [(key, version) for key, version in flat(versions)]
    from_logs = merged(table, logs, clean_up=rules)[0]
    from_chunks = merged(table, chunks=chunks, clean_up=rules)[0]
    assert read(table, from_logs) == read(table, from_chunks) == expected
    alone = {key: merge_deletes(some) for key, some in model(table, rows).items()}
    assert read(table, merged(table, logs[:1], chunks[1:], merge_deletions=True)[0]) == flat(alone)
