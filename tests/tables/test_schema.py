"""Schemas, their refusals, which may follow which; paths and attributes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.conf.table_attributes import retention_ms, with_retention
from pqbroker.tables.attributes import check_attributes
from pqbroker.tables.paths import table_path, topic_name
from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import check_alteration, check_names, read_schema
from pqbroker.tables.types import TYPES
from tests.support.column_names import CLASHING, NEAR

A = {"name": "a", "type": "int32"}


def test_a_schema_is_stored_as_it_is_read() -> None:
    given = [{"name": name, "type": name, "required": name == "any", "from": "key"} for name in TYPES]
    schema = read_schema(given, 100)
    assert list(schema.documents()) == given
    assert read_schema(schema.documents(), 100) == schema


@pytest.mark.parametrize(
    ("items", "word"),
    [
        ([], "0 columns"),
        ([A, A], "twice"),
        ([A, {"name": "b", "type": "any"}, {"name": "c", "type": "any"}], "1 to 2"),
        ([{**A, "sort_order": "ascending"}], "sort_order"),
        ([{**A, "requierd": True}], "requierd"),
        ([{**A, "required": 1}], "required"),
        ([{**A, "from": "header"}], "header"),
        ([{"name": "a", "type": "int33"}], "int33"),
        ([{"name": "a", "type": 1}], "type"),
        ([{"name": "$tablet_index", "type": "int64"}], "tablet_index"),
        ([A, {"name": "$timestamp", "type": "int64"}], "$timestamp"),
        ([A, {"name": "$cumulative_data_weight", "type": "int64", "required": True}], "$cumulative_data_weight"),
        ([{"name": "$timestamp", "type": "uint64"}], "of your own"),
        ([{"name": "", "type": "any"}], "name"),
        ([{"name": "x" * 257, "type": "any"}], "name"),
        ([{"name": "\ud800", "type": "any"}], "surrogate"),
        ([{"type": "any"}], "name"),
        (["a"], "no object"),
    ],
)
def test_what_is_no_schema_is_refused_by_name(items: list[Any], word: str) -> None:
    with pytest.raises(TableError) as refused:
        read_schema(items, 2)
    assert refused.value.code == "INVALID_SCHEMA"
    assert word in refused.value.message
    assert refused.value.cure


def test_a_wrong_type_is_refused_with_all_types() -> None:
    with pytest.raises(TableError) as refused:
        read_schema([{"name": "a", "type": "int"}], 2)
    assert refused.value.cure.startswith("Give one of int8, int16, int32, int64, ")
    assert refused.value.cure.endswith(", timestamp.")


def test_a_schema_may_ask_for_columns_that_the_table_fills() -> None:
    items = [{"name": "$timestamp", "type": "uint64"}, A, {"name": "$cumulative_data_weight", "type": "int64"}]
    schema = read_schema(items, 3)
    assert list(schema.columns) == ["a"]
    assert list(schema.shown) == ["$timestamp", "a", "$cumulative_data_weight"]
    assert (schema.filled, schema.filled_weight) == (("$timestamp", "$cumulative_data_weight"), 16)
    assert read_schema(schema.documents(), 3) == schema
    check_alteration(read_schema([A], 9), schema)
    with pytest.raises(TableError):
        check_alteration(schema, read_schema([A], 9))


@pytest.mark.parametrize("names", [*CLASHING, ("Timestamp_MS", "b", "timestamp_ms")])
def test_columns_that_differ_by_case_alone_are_refused_by_both_names(names: tuple[str, ...]) -> None:
    schema = read_schema([{**A, "name": name} for name in names], 100)
    with pytest.raises(TableError) as refusal:
        check_names(schema)
    assert refusal.value.code == "INVALID_SCHEMA"
    assert f"{names[0]!r} and {names[-1]!r}" in refusal.value.message


def test_columns_of_different_names_are_taken_one_like_the_records_own_among_them() -> None:
    check_names(read_schema([{**A, "name": name} for name in ("a", "b", "KEY", "Timestamp_MS", "é", "e")], 9))


@pytest.mark.parametrize("names", CLASHING)
def test_a_column_is_not_added_beside_one_that_differs_by_case_alone(names: tuple[str, str]) -> None:
    for first, added in (names, names[::-1]):
        old = read_schema([{**A, "name": first}], 9)
        later = read_schema([{**A, "name": first}, {**A, "name": added}], 9)
        check_alteration(old, later)
        with pytest.raises(TableError, match="differ by upper and lower case alone") as refusal:
            check_names(later, old)
        assert f"{first!r} and {added!r}" in refusal.value.message


@pytest.mark.parametrize("names", NEAR)
def test_names_that_only_look_alike_are_two_columns(names: tuple[str, str]) -> None:
    check_names(read_schema([{**A, "name": name} for name in names], 9))


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(TableError, match="NUL"):
        check_names(read_schema([{**A, "name": "a\0b"}], 100))


def test_a_clash_that_the_old_schema_has_may_stay_and_no_other_is_added() -> None:
    old = read_schema([A, {**A, "name": "A"}], 100)
    check_names(read_schema([A, {**A, "name": "A"}, {**A, "name": "b"}], 100), old)
    check_names(read_schema([{**A, "name": "A"}], 100), read_schema([A], 100))
    with pytest.raises(TableError, match="'b' and 'B'"):
        check_names(read_schema([A, {**A, "name": "A"}, {**A, "name": "b"}, {**A, "name": "B"}], 100), old)
    with pytest.raises(TableError, match="'a' and 'A'"):
        check_names(read_schema([{**A, "name": "A"}, A], 100), read_schema([A], 100))


def test_a_wrong_type_is_answered_with_the_nearest() -> None:
    with pytest.raises(TableError) as refused:
        read_schema([{"name": "a", "type": "int33"}], 2)
    assert "int32" in refused.value.cure


@pytest.mark.spec("E.10", "K.5")
@pytest.mark.parametrize(
    "later",
    [
        [A],
        [{**A, "type": "int64"}],
        [A, {"name": "b", "type": "any"}],
        [{"name": "b", "type": "any"}, A],
    ],
)
def test_compatible_schemas_may_follow(later: list[Any]) -> None:
    check_alteration(read_schema([A], 9), read_schema(later, 9))


def test_a_column_may_become_optional_and_an_unsigned_one_wider_and_signed() -> None:
    check_alteration(read_schema([{**A, "required": True}], 9), read_schema([A], 9))
    check_alteration(read_schema([{**A, "type": "uint32"}], 9), read_schema([{**A, "type": "int64"}], 9))


@pytest.mark.spec("E.10", "K.5")
@pytest.mark.parametrize(
    ("later", "word"),
    [
        ([{"name": "b", "type": "any"}], "'a' is missing"),
        ([{**A, "type": "int16"}], "int16"),
        ([{**A, "type": "uint64"}], "uint64"),
        ([{**A, "type": "string"}], "string"),
        ([{**A, "required": True}], "required"),
        ([{**A, "from": "key"}], "key"),
        ([A, {"name": "b", "type": "any", "required": True}], "'b' is required"),
    ],
)
def test_incompatible_schemas_are_refused(later: list[Any], word: str) -> None:
    with pytest.raises(TableError) as refused:
        check_alteration(read_schema([A], 9), read_schema(later, 9))
    assert refused.value.code == "INCOMPATIBLE_SCHEMA"
    assert word in refused.value.message


def test_a_path_is_a_topic_and_back() -> None:
    assert topic_name("//a/b/c") == "a.b.c"
    assert table_path("a.b.c") == "//a/b/c"


@pytest.mark.parametrize("path", ["a/b", "/a", "//", "//a//b", "//a/", "//a.b/c", ""])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(TableError):
        topic_name(path)


@pytest.mark.spec("E.6", "K.4")
@pytest.mark.parametrize(
    ("attributes", "kept_ms"),
    [
        ({}, -1),
        ({"min_data_versions": 1, "max_data_versions": 0, "min_data_ttl": 5}, -1),
        ({"min_data_versions": 0, "max_data_versions": 0, "min_data_ttl": 5, "max_data_ttl": 9}, 5),
        ({"min_data_versions": 0, "max_data_versions": 1, "min_data_ttl": 5, "max_data_ttl": 9}, 9),
        ({"min_data_versions": 0, "max_data_versions": 1, "min_data_ttl": 9, "max_data_ttl": 5}, 9),
    ],
)
def test_rows_go_by_the_four_combinations_of_versions_and_ages(attributes: dict[str, int], kept_ms: int) -> None:
    check_attributes(attributes)
    assert retention_ms(attributes) == kept_ms


@given(
    st.dictionaries(st.sampled_from(["min_data_versions", "max_data_versions"]), st.integers(0, 2)),
    st.dictionaries(st.sampled_from(["min_data_ttl", "max_data_ttl"]), st.integers(0, 20)),
    st.integers(-1, 20),
)
def test_an_age_in_kafkas_words_is_attributes(versions: dict[str, int], ages: dict[str, int], kept_ms: int) -> None:
    before = {**versions, **ages, "commit_ordering": "strong"}
    after = with_retention(before, kept_ms)
    check_attributes(after)
    assert retention_ms(after) == kept_ms
    assert after["commit_ordering"] == "strong"
    if kept_ms >= 0:
        assert (after["max_data_ttl"], after["min_data_versions"]) == (kept_ms, 0)
        assert after["min_data_ttl"] <= kept_ms
        assert with_retention(after, -1)["max_data_ttl"] == kept_ms, "ages are kept while they do not act"


@pytest.mark.parametrize(
    ("attributes", "word"),
    [
        ({"min_data_tll": 1}, "min_data_tll"),
        ({"min_data_ttl": -1}, "min_data_ttl"),
        ({"min_data_ttl": True}, "min_data_ttl"),
        ({"min_data_ttl": "1"}, "min_data_ttl"),
        ({"commit_ordering": "strange"}, "commit_ordering"),
    ],
)
def test_attributes_that_no_table_has_are_refused(attributes: dict[str, Any], word: str) -> None:
    with pytest.raises(TableError) as refused:
        check_attributes(attributes)
    assert refused.value.code == "INVALID_ATTRIBUTE"
    assert word in refused.value.message
