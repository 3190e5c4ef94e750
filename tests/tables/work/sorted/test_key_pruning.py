"""Ranges of keys that a WHERE leaves hold every row that DuckDB answers with: of every type, with null keys, negative
numbers, doubles that have no exact digits, strings with zeros within them."""

import math
import random
import struct
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow
import pytest

from pqbroker.tables.sorted.keys import key_encoder
from pqbroker.tables.work.comparisons import VALUES_MAX
from pqbroker.tables.work.parsing import parse
from pqbroker.tables.work.sorted.key_pruning import EVERY_KEY, KEY_RANGES_MAX, KeyBounds, key_ranges_of, within
from pqbroker.tables.work.sorted.version_columns import STORED_TYPES
from pqbroker.tables.work.typed import ARROW_TYPES
from tests.support.depth import examples

EPOCH = datetime.fromisoformat("1970-01-01")
VALUES: dict[str, Sequence[Any]] = {
    "int8": (-128, -1, 0, 1, 5, 127),
    "int64": (-(1 << 63), -5, -1, 0, 1, 2, 5, 255, 256, (1 << 63) - 1),
    "uint8": (0, 1, 5, 255),
    "uint64": (0, 1, 5, 255, 1 << 63, (1 << 64) - 1),
    "double": (-math.inf, -1e300, -2.5, -0.1, 0.0, 5e-324, 0.1, 0.30000000000000004, 1.0, 5.0, 1e17, math.inf),
    "boolean": (False, True),
    "string": (b"", b"\0", b"\0\0a", b"a", b"a\0", b"a\0b", b"ab", b"\xff\xff", b"b"),
    "utf8": ("", "\0", "a", "a\0", "a\0b", "ab", "é", "\U0010ffff", "b", "5"),
    "timestamp": (0, 1, 1_600_000_000_000_000, 1_600_000_000_000_001, 1_700_000_000_123_456),
}
"""Values of key columns by type, as they are encoded."""


def literal(dice: random.Random, kind: str) -> str:
    """A literal that is compared with such a column; some lie beyond what the type holds."""
    value: Any = dice.choice(VALUES[kind])
    if kind == "double":
        texts = ["0.1", "-0.10", "1e-1", ".3", "5", "-2.5", "100000000000000000", "0.30000000000000004", "1."]
        return dice.choice(texts)
    if "int" in kind:
        beside = str(value + dice.choice([-1, 1]))
        return dice.choice([str(value), beside, f"-({abs(value)})", str(1 << 70), "-7", "2.5"])
    if kind == "boolean":
        return str(value).upper()
    if kind == "timestamp":
        moment = EPOCH + timedelta(microseconds=value)
        forms = [f"'{moment}'", f"TIMESTAMP '{moment}'", f"DATE '{moment.date()}'", "DATE '2020-09-13 12:26:40'"]
        return dice.choice([*forms, "'1969-12-31'", "TIMESTAMP '1969-12-31 23:59:59.999999'", "'2020-9-13'"])
    if kind == "string":
        return dice.choice(["''", "'a'", "'ab'", "'b'", "'a\\x00'", "'a\\x00b'", "'\\xFF'"])
    return f"'{value}'".replace("\0", "")


def condition(dice: random.Random, columns: Sequence[tuple[str, str]]) -> str:
    name, kind = dice.choice(columns)
    given, other = literal(dice, kind), literal(dice, kind)
    forms = [
        f"{name} = {given}", f"{name} < {given}", f"{given} < {name}", f"{name} <= {given}", f"{name} >= {given}",
        f"{name} > {given}", f"({name}) = ({given})", f"{name} BETWEEN {given} AND {other}", f"{name} IS NULL",
        f"{name} IN ({given}, {other})", f"{name} IN ({given})", f"{name} <> {given}", f"NOT {name} = {given}",
        f"({name} = {given} OR {name} = {other})", f"{name} IS NOT NULL", f"{name} IS NOT DISTINCT FROM {given}",
    ]  # fmt: skip
    return dice.choice(forms)


def kept(keys: Sequence[bytes], ranges: Sequence[KeyBounds]) -> list[int]:
    """Numbers of the keys within ranges, as often as they are."""
    return [
        number
        for first, end in ranges
        for number, key in enumerate(keys)
        if first <= key and (end is None or key < end)
    ]


def ranges_of(columns: Sequence[tuple[str, str]], where: str) -> list[KeyBounds]:
    (named,) = parse(f"SELECT * FROM t WHERE {where}", 100).topics
    return key_ranges_of(tuple(columns), named.comparisons)


@pytest.mark.parametrize("seed", range(examples(60, least=15)))
def test_no_row_that_a_where_takes_is_pruned_and_none_comes_twice(seed: int) -> None:
    dice = random.Random(seed)
    columns = [(name, dice.choice([*VALUES])) for name in ("a", "B", "c")]
    rows = [[dice.choice([None, *VALUES[kind]]) for _, kind in columns] for _ in range(120)]
    keys = [key_encoder([kind for _, kind in columns])(row) for row in rows]
    arrays = []
    for number, (_, kind) in enumerate(columns):
        array = pyarrow.array([row[number] for row in rows], STORED_TYPES[kind])
        arrays.append(array.view(ARROW_TYPES[kind]) if array.type != ARROW_TYPES[kind] else array)
    table = pyarrow.table([*arrays, list(range(len(rows)))], names=[name for name, _ in columns] + ["number"])
    pruned = 0
    with duckdb.connect(":memory:") as connection:
        connection.register("t", table)
        for _ in range(60):
            where = " AND ".join(condition(dice, columns) for _ in range(dice.randrange(1, 5)))
            expected = connection.sql(f"SELECT number FROM t WHERE {where}").fetchall()
            ranges = ranges_of(columns, where)
            found = kept(keys, ranges)
            assert len(set(found)) == len(found), where
            assert {number for (number,) in expected} <= {*found}, (columns, where)
            assert all(one[1] is not None and one[1] <= two[0] for one, two in pairwise(ranges))
            pruned += len(found) < len(rows)
    assert pruned > 10


KEYS = [("shop", "utf8"), ("id", "int64"), ("at", "timestamp")]
encode = key_encoder(["utf8", "int64"])


@pytest.mark.parametrize(
    ("where", "ranges"),
    [
        ("shop = 'a'", [(encode(["a"]), encode(["a"])[:-1] + b"\1")]),
        ("shop = 'a' AND id = 5", [(encode(["a", 5]), encode(["a", 6]))]),
        ("shop = 'a' AND id >= 5 AND id < 8 AND id < 9", [(encode(["a", 5]), encode(["a", 8]))]),
        ("shop IN ('b', 'a') AND id = 5", [(encode(["a", 5]), encode(["a", 6])), (encode(["b", 5]), encode(["b", 6]))]),
        ("SHOP = 'a' AND shop = 'b'", []),
        ("id = 5", [EVERY_KEY]),
        ("shop IS NULL AND id = 5", [(encode([None, 5]), encode([None, 6]))]),
        ("shop > 'a' AND id = 5", [(encode(["a"])[:-1] + b"\1", b"\2")]),
        ("shop = 5", [EVERY_KEY]),
        ("lower(shop) = 'a'", [EVERY_KEY]),
        ("shop = 'a' OR shop = 'b'", [EVERY_KEY]),
        ("other = 'a'", [EVERY_KEY]),
    ],
)
def test_equality_of_the_first_columns_and_a_range_of_the_next_are_ranges(where: str, ranges: Any) -> None:
    assert ranges_of(KEYS, where) == ranges


def test_many_values_become_few_ranges_and_too_many_none() -> None:
    numbers = [("id", "int64")]
    some = ranges_of(numbers, f"id IN ({', '.join(map(str, range(0, 3000, 3)))})")
    assert KEY_RANGES_MAX // 2 < len(some) <= KEY_RANGES_MAX
    many = ", ".join(map(str, range(VALUES_MAX + 1)))
    assert ranges_of(numbers, f"id IN ({many})") == [EVERY_KEY]


def test_a_null_of_a_join_is_no_key() -> None:
    """A row that a join finds no partner for has null columns: those of the table do not say so."""
    for join in ("LEFT JOIN", "FULL JOIN"):
        named = parse(f"SELECT * FROM u {join} t ON u.id = t.id WHERE t.shop IS NULL", 100).topics
        assert [each.comparisons for each in named] == [(), ()]
    named = parse("SELECT * FROM u LEFT JOIN t ON u.id = t.id WHERE t.shop = 'a'", 100).topics
    assert [len(each.comparisons) for each in named] == [0, 1]


def test_ranges_are_cut_at_a_tablet() -> None:
    ranges: list[KeyBounds] = [(b"b", b"d"), (b"f", None)]
    assert within(ranges, b"", None) == ranges
    assert within(ranges, b"c", b"g") == [(b"c", b"d"), (b"f", b"g")]
    assert within(ranges, b"d", b"f") == []
    assert within([EVERY_KEY], b"d", b"f") == [(b"d", b"f")]


def test_neighbours_of_a_double_are_kept() -> None:
    ranges = ranges_of([("x", "double")], "x = 0.1")
    (below,) = struct.unpack("<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", 0.1))[0] - 1))
    keys = [key_encoder(["double"])([value]) for value in (below, 0.1, 0.2)]
    assert kept(keys, ranges) == [0, 1]
