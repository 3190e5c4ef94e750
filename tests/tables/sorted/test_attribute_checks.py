"""Attributes of sorted tables: names, defaults, ranges, what depends on what, forced revisions (C.3, K.3)."""

from typing import Any

import pytest

from pqbroker.conf.declare import declarations
from pqbroker.conf.sorted_attributes import NULLABLE, SortedAttributes, sorted_document, sorted_in_force
from pqbroker.conf.table_attributes import DEFAULTS
from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.attribute_checks import check_sorted_attributes, with_next_revision

pytestmark = pytest.mark.spec("C.3", "K.3")

MIB = 1 << 20
OF_THE_SEED = {
    "dynamic_store_auto_flush_period": 900_000,
    "dynamic_store_flush_period_splay": 60_000,
    "merge_rows_on_flush": False,
    "merge_deletions_on_flush": False,
    "max_dynamic_store_row_count": 1_000_000,
    "max_dynamic_store_pool_size": 1_073_741_824,
    "dynamic_store_overflow_threshold": 0.7,
    "auto_compaction_period": None,
    "auto_compaction_period_splay_ratio": 0.3,
    "periodic_compaction_mode": "store",
    "forced_compaction_revision": None,
    "max_overlapping_store_count": 30,
    "enable_compaction_and_partitioning": True,
    "min_partition_data_size": 96 * MIB,
    "desired_partition_data_size": 256 * MIB,
    "max_partition_data_size": 320 * MIB,
    "min_partitioning_data_size": 64 * MIB,
    "max_partitioning_data_size": 1024 * MIB,
    "min_partitioning_store_count": 1,
    "max_partitioning_store_count": 5,
    "min_compaction_store_count": 3,
    "max_compaction_store_count": 5,
    "compaction_data_size_base": 16 * MIB,
    "compaction_data_size_ratio": 2.0,
    "min_data_ttl": 1_800_000,
    "max_data_ttl": 1_800_000,
    "min_data_versions": 1,
    "max_data_versions": 1,
}


def refused(given: dict[str, Any], before: dict[str, Any] | None = None) -> TableError:
    with pytest.raises(TableError) as caught:
        check_sorted_attributes(given, before or {})
    assert caught.value.code == "INVALID_ATTRIBUTE"
    return caught.value


def test_the_defaults_are_those_of_the_seed() -> None:
    document = sorted_document({})
    assert {name: document[name] for name in OF_THE_SEED} == OF_THE_SEED


def test_each_attribute_takes_its_own_default_and_is_named_as_its_field() -> None:
    known = declarations(SortedAttributes)
    assert [one.attribute for one in known.values()] == list(known)
    check_sorted_attributes({name: one.default for name, one in known.items()}, {})


def test_what_is_set_is_in_force_and_the_rest_has_defaults() -> None:
    found = sorted_in_force({"max_overlapping_store_count": 7})
    assert (found.max_overlapping_store_count, found.max_compaction_store_count) == (7, 5)


def test_the_critical_overlap_is_the_lower_of_two_limits() -> None:
    assert sorted_in_force({}).critical_overlap == 30
    assert sorted_in_force({"critical_overlapping_store_count": 10}).critical_overlap == 10
    assert sorted_in_force({"critical_overlapping_store_count": 40}).critical_overlap == 30


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    error = refused({"max_overlaping_store_count": 5})
    assert "max_overlaping_store_count" in error.message
    assert error.cure == "Did you mean 'max_overlapping_store_count'?"


@pytest.mark.parametrize("name", sorted(DEFAULTS.keys() - OF_THE_SEED.keys()))
def test_an_attribute_of_ordered_tables_is_refused_as_such(name: str) -> None:
    assert "ordered tables" in refused({name: DEFAULTS[name]}).message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_overlapping_store_count", 1),
        ("max_overlapping_store_count", "30"),
        ("max_overlapping_store_count", True),
        ("max_overlapping_store_count", 30.0),
        ("max_overlapping_store_count", 1 << 31),
        ("max_dynamic_store_pool_size", 1 << 63),
        ("dynamic_store_overflow_threshold", 1.01),
        ("dynamic_store_overflow_threshold", 0),
        ("dynamic_store_overflow_threshold", float("nan")),
        ("dynamic_store_overflow_threshold", float("inf")),
        ("dynamic_store_overflow_threshold", "0.7"),
        ("auto_compaction_period", 0),
        ("auto_compaction_period_splay_ratio", -0.1),
        ("compaction_data_size_ratio", 0.9),
        ("min_compaction_store_count", 1),
        ("merge_rows_on_flush", 1),
        ("periodic_compaction_mode", "chunk"),
        ("periodic_compaction_mode", None),
        ("in_memory_mode", "packed"),
        ("in_memory_mode", ["none"]),
        ("min_data_ttl", -1),
        ("forced_compaction_revision", 0),
    ],
)
def test_a_value_out_of_range_or_of_another_kind_is_refused_by_field(name: str, value: object) -> None:
    error = refused({name: value})
    assert error.message.startswith(f"attributes.{name} is ")
    assert error.cure[0].isupper()
    assert error.cure.endswith((".", "?"))


def test_a_long_value_is_cut_in_the_error() -> None:
    assert len(refused({"in_memory_mode": "x" * 10_000}).message) < 200


def test_null_is_taken_where_it_has_a_meaning_and_nowhere_else() -> None:
    for name in declarations(SortedAttributes):
        if name in NULLABLE:
            check_sorted_attributes({name: None}, {})
        else:
            refused({name: None})
    assert {"auto_compaction_period", "dynamic_store_auto_flush_period", "forced_compaction_revision"} < NULLABLE


def test_a_double_takes_a_whole_number() -> None:
    check_sorted_attributes({"compaction_data_size_ratio": 3}, {})


@pytest.mark.parametrize(
    "given",
    [
        {"min_partition_data_size": 256 * MIB},
        {"desired_partition_data_size": 320 * MIB},
        {"max_partition_data_size": 256 * MIB},
        {"min_partitioning_data_size": 1025 * MIB},
        {"max_partitioning_store_count": 4, "min_partitioning_store_count": 5},
        {"max_compaction_store_count": 2},
        {"max_dynamic_store_value_count": 999_999},
    ],
)
def test_sizes_that_are_not_increasing_are_refused(given: dict[str, Any]) -> None:
    error = refused(given)
    assert any(name in error.message for name in given)
    assert "in one change" in error.cure


def test_counts_may_be_equal_and_partition_sizes_may_not() -> None:
    check_sorted_attributes({"min_compaction_store_count": 5}, {})
    check_sorted_attributes({"max_partitioning_data_size": 64 * MIB}, {})
    check_sorted_attributes({"max_dynamic_store_value_count": 1_000_000}, {})
    refused({"min_partition_data_size": 256 * MIB})


def test_what_was_set_before_counts() -> None:
    check_sorted_attributes({"max_compaction_store_count": 2}, {"min_compaction_store_count": 2})
    refused({"min_compaction_store_count": 6}, {"max_compaction_store_count": 5})
    check_sorted_attributes({"min_compaction_store_count": 6}, {"max_compaction_store_count": 8})


def test_a_forced_revision_of_one_becomes_the_tables_next_revision() -> None:
    assert with_next_revision({"forced_compaction_revision": 1}, 58) == {"forced_compaction_revision": 58}


def test_a_forced_revision_of_before_and_null_stay_as_they_are() -> None:
    for given in ({"forced_compaction_revision": 57}, {"forced_compaction_revision": None}, {"min_data_ttl": 1}):
        assert with_next_revision(given, 58) == given


def test_a_forced_revision_that_no_chunk_has_yet_is_refused() -> None:
    with pytest.raises(TableError, match="59") as caught:
        with_next_revision({"forced_compaction_revision": 59}, 58)
    assert caught.value.cure.startswith("Give 1")
