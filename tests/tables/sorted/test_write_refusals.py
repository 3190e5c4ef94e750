"""Refusals of writes to sorted tables: the limit, the seed's text, the cure, YT's number (C.9)."""

from dataclasses import replace

import pytest

from pqbroker.conf.sorted_attributes import DYNAMIC_STORES_MAX, sorted_in_force
from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.write_refusals import (
    YT_NUMBERS,
    WriteFacts,
    memory_refusal,
    write_refusal,
)
from tests.tables.sorted.picking.stores import MIB, store

pytestmark = pytest.mark.spec("C.9")

CALM = WriteFacts(29, 9_999, 99, DYNAMIC_STORES_MAX - 1, store(rows=999_999))
LIMITS = sorted_in_force({})


def refused(facts: WriteFacts) -> TableError:
    error = write_refusal(facts, LIMITS)
    assert error is not None
    return error


def test_one_below_every_limit_writes_are_taken() -> None:
    assert write_refusal(CALM, LIMITS) is None
    assert memory_refusal(256 * MIB - 1, 128 * MIB - 1, 256 * MIB) is None


@pytest.mark.parametrize(
    ("facts", "code", "text", "cure"),
    [
        (
            replace(CALM, overlapping_store_count=30), "TOO_MANY_OVERLAPPING_STORES",
            "Too many overlapping stores in tablet, all writes disabled: 30, and max_overlapping_store_count is 30",
            "enable_compaction_and_partitioning",
        ),
        (
            replace(CALM, store_count=10_000), "TOO_MANY_STORES",
            "Too many stores in tablet, all writes disabled: 10000, and max_stores_per_tablet is 10000", "reshard",
        ),
        (
            replace(CALM, eden_store_count=100), "TOO_MANY_EDEN_STORES",
            "Too many Eden stores in tablet, all writes disabled: 100, and max_eden_stores_per_tablet is 100",
            "enable_compaction_and_partitioning",
        ),
        (
            replace(CALM, dynamic_store_count=DYNAMIC_STORES_MAX), "TOO_MANY_DYNAMIC_STORES",
            "Too many dynamic stores in tablet, all writes disabled: 10, and the limit is 10", "enable_store_flush",
        ),
        (
            replace(CALM, active=store(rows=1_000_000)), "STORE_OVERFLOWN",
            "Active store is overflown, all writes disabled: it has 1000000 rows of 1000000", "enable_store_rotation",
        ),
        (
            replace(CALM, active=store(size=1 << 30)), "STORE_OVERFLOWN",
            "Active store is overflown, all writes disabled: it has 1073741824 bytes of 1073741824",
            "enable_store_rotation",
        ),
    ],
)  # fmt: skip
def test_at_a_limit_writes_are_refused_with_the_seeds_text_and_a_cure(
    facts: WriteFacts, code: str, text: str, cure: str
) -> None:
    error = refused(facts)
    assert (error.code, error.message) == (code, text)
    assert cure in error.cure
    assert YT_NUMBERS[error.code] == 1703


def test_the_limit_is_the_attribute_in_force() -> None:
    assert write_refusal(CALM, sorted_in_force({"max_overlapping_store_count": 29})) is not None


def test_a_node_out_of_memory_refuses_all_writes() -> None:
    error = memory_refusal(256 * MIB, 0, 256 * MIB)
    assert error is not None
    assert error.message.startswith("Node is out of tablet memory, all writes disabled")
    assert (error.code, YT_NUMBERS[error.code]) == ("OUT_OF_TABLET_MEMORY", 1703)


def test_a_table_that_holds_half_of_the_memory_refuses_its_own_writes() -> None:
    error = memory_refusal(128 * MIB, 128 * MIB, 256 * MIB)
    assert error is not None
    assert error.message.startswith("Table is out of tablet memory")
    assert error.code == "OUT_OF_TABLET_MEMORY"


def test_the_numbers_are_yts() -> None:
    assert {
        code: YT_NUMBERS[code]
        for code in ("ROW_LOCK_CONFLICT", "WRONG_STATE", "INVALID_MOUNT_REVISION", "TOO_MANY_ROWS_IN_TRANSACTION")
    } == {
        "ROW_LOCK_CONFLICT": 1700, "WRONG_STATE": 1702, "INVALID_MOUNT_REVISION": 1704,
        "TOO_MANY_ROWS_IN_TRANSACTION": 1717,
    }  # fmt: skip
