"""Retention with important groups, and why the oldest data is still held (semantics A.11, K.1, H6, H7)."""

from dataclasses import replace
from itertools import product

import pytest

from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.blob_cycles import plan_batches, plan_close
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.retention import AUTO_FLUSH_MS, Hold, why_held
from pqbroker.pq.log.trim_cycles import plan_retention, plan_trim
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.pq.serving.partition_server import PartitionServer
from tests.pq.rig import DAY_MS, KIB, MIB, START_MS, Node, batch, check_invariants, new_partition, write

KEPT_MS = 1000
AVAILABLE_MS = 5000


def filled(config: TopicConfig) -> Partition:
    """Two bodies, [0, 6) and [6, 12), and a head of two records, all written at START_MS."""
    partition = new_partition(config)
    for _ in range(14):
        partition.apply(plan_batches(partition, [batch(size=MIB)], START_MS))
    return partition


def start_after(partition: Partition, now_ms: int, first_unread: dict[str, int]) -> int:
    cycle = plan_retention(partition, now_ms, first_unread)
    if not cycle.is_empty:
        partition.apply(cycle)
    check_invariants(partition)
    return partition.start_offset


MATRIX = list(
    product([-1, KEPT_MS], [-1, 7 * MIB], [-1, AVAILABLE_MS], [False, True], [-1, 5, 6, 11, 14], [0, 1000, 5000])
)


@pytest.mark.spec("A.11", "H6", "H7", "K.1", "J.1")
def test_every_combination_of_limits_and_readers_keeps_what_it_must() -> None:
    for case in MATRIX:
        check_combination(*case)


def check_combination(
    kept_ms: int, kept_bytes: int, available_ms: int, when_read: bool, read_to: int, age_ms: int
) -> None:
    config = replace(
        TopicConfig(), retention_ms=kept_ms, retention_bytes=kept_bytes, pq_availability_period_ms=available_ms,
        pq_delete_when_read=when_read, pq_important_groups=("a", "b"),
    )  # fmt: skip
    is_old = 0 <= kept_ms <= age_ms
    is_over = [kept_bytes >= 0, False, False]
    """Of 14 MiB the first body may go: 8 MiB are left."""
    expected = 0
    for blob, (end, is_large) in enumerate(zip((6, 12, 14), is_over, strict=True)):
        is_read = end <= read_to
        may_go = is_old or is_large or (when_read and is_read)
        is_held = not is_read and not 0 <= available_ms <= age_ms
        if not may_go or is_held:
            break
        expected = end
        assert blob < 3
    found = start_after(filled(config), START_MS + age_ms, {"a": 14, "b": read_to})
    assert found == expected, (kept_ms, kept_bytes, available_ms, when_read, read_to, age_ms)


AUTO_TRIMS = list(
    product([False, True], [-1, 0, 4, 20], [-1, 1000], [{}, {"a": -1}, {"a": 14}, {"a": 20, "b": 7}], [0, 1000], [0, 3])
)


@pytest.mark.spec("E.13", "J.6")
def test_auto_trim_keeps_what_vital_consumers_rows_and_lifetime_say() -> None:
    for case in AUTO_TRIMS:
        check_auto_trim(*case)


def check_auto_trim(
    is_on: bool, rows: int, lifetime_ms: int, first_unread: dict[str, int], age_ms: int, start: int
) -> None:
    config = replace(
        TopicConfig(), retention_ms=-1, retention_bytes=-1, pq_important_groups=tuple(first_unread), pq_auto_trim=is_on,
        pq_auto_trim_retained_rows=rows, pq_auto_trim_retained_ms=lifetime_ms,
    )  # fmt: skip
    partition = filled(config)
    if start:
        partition.apply(plan_trim(partition, start, START_MS))
    expected = start
    if is_on and first_unread:
        trimmed = min(*first_unread.values(), 14 - max(rows, 0))
        is_young = lifetime_ms >= 0 and age_ms < lifetime_ms
        expected = max(start, trimmed) if not is_young else start
    for _ in range(2):
        found = start_after(partition, START_MS + age_ms, first_unread)
        assert found == expected, (is_on, rows, lifetime_ms, first_unread, age_ms, start)


def test_auto_trim_deletes_old_blobs_up_to_the_first_young_one() -> None:
    partition = new_partition(
        replace(TopicConfig(), retention_ms=-1, pq_important_groups=("a",), pq_auto_trim=True,
                pq_auto_trim_retained_ms=1000)
    )  # fmt: skip
    for number in range(14):
        partition.apply(plan_batches(partition, [batch(size=MIB)], START_MS + 100 * number))
    assert start_after(partition, START_MS + 1500, {"a": 14}) == 6
    assert start_after(partition, START_MS + 1500, {"a": 3}) == 6
    assert start_after(partition, START_MS + 5000, {"a": 13}) == 13


def test_auto_trim_of_a_compacted_topic_deletes_nothing() -> None:
    partition = filled(replace(TopicConfig(), cleanup_policy=("compact",), pq_auto_trim=True))
    assert start_after(partition, START_MS, {"a": 14}) == 0


def test_one_group_that_lags_holds_for_all() -> None:
    partition = filled(replace(TopicConfig(), retention_ms=KEPT_MS))
    assert start_after(partition, START_MS + KEPT_MS, {"a": 14, "b": 14, "c": 6}) == 6
    assert start_after(partition, START_MS + KEPT_MS, {"a": 14, "b": 14, "c": 14}) == 14


@pytest.mark.spec("A.11", "H6", "H7", "K.1", "J.1")
def test_a_lifetime_of_zero_deletes_when_read() -> None:
    partition = filled(replace(TopicConfig(), retention_ms=0))
    assert start_after(partition, START_MS, {"a": 5}) == 0
    assert start_after(partition, START_MS, {"a": 7}) == 6


def test_delete_when_read_without_important_groups_deletes_nothing() -> None:
    partition = filled(replace(TopicConfig(), pq_delete_when_read=True))
    assert start_after(partition, START_MS, {}) == 0


def test_compacted_topics_delete_nothing_that_was_read() -> None:
    partition = filled(replace(TopicConfig(), cleanup_policy=("compact",), pq_delete_when_read=True))
    assert start_after(partition, START_MS, {"a": 14}) == 0


@pytest.mark.spec("A.11")
@pytest.mark.parametrize(
    ("changes", "first_unread", "age_ms", "hold", "until_ms"),
    [
        ({}, {}, 0, Hold.YOUNG, 7 * DAY_MS),
        ({}, {"a": 3}, 0, Hold.YOUNG, 7 * DAY_MS),
        ({"cleanup_policy": ("compact",)}, {}, 0, Hold.COMPACTED, None),
        ({"retention_ms": -1}, {}, 0, Hold.UNLIMITED, None),
        ({"retention_ms": -1, "retention_bytes": 20 * MIB}, {}, 0, Hold.SIZE, None),
        ({"retention_ms": -1, "retention_bytes": 7 * MIB}, {}, 0, Hold.DUE, 0),
        ({"retention_ms": -1, "retention_bytes": -2}, {}, 0, Hold.UNLIMITED, None),
        ({"retention_ms": KEPT_MS}, {}, KEPT_MS, Hold.DUE, KEPT_MS),
        ({"retention_ms": KEPT_MS}, {"a": 5, "b": 6}, KEPT_MS, Hold.CONSUMER, None),
        ({"retention_ms": KEPT_MS, "pq_availability_period_ms": 5000}, {"a": 5}, KEPT_MS, Hold.CONSUMER, 5000),
        ({"retention_ms": KEPT_MS, "pq_availability_period_ms": 5000}, {"a": 5}, 5000, Hold.DUE, 5000),
        ({"pq_delete_when_read": True}, {"a": 5}, 0, Hold.CONSUMER, None),
        ({"pq_delete_when_read": True}, {"a": 6}, 0, Hold.DUE, 0),
    ],
)
def test_why_the_oldest_data_is_held(
    changes: dict[str, object], first_unread: dict[str, int], age_ms: int, hold: Hold, until_ms: int | None
) -> None:
    config = replace(TopicConfig(), **changes)  # type: ignore[arg-type]
    partition = filled(config)
    held = why_held(partition.bodies, partition.head, partition.settings, START_MS + age_ms, first_unread)
    assert (held.hold, held.until_ms) == (hold, None if until_ms is None else START_MS + until_ms)
    assert held.groups == (("a",) if hold is Hold.CONSUMER else ())
    assert (start_after(partition, START_MS + age_ms, first_unread) > 0) == (hold is Hold.DUE)


def test_the_last_blob_of_a_partition_over_its_size_is_said_to_stay() -> None:
    config = replace(TopicConfig(), retention_ms=-1, retention_bytes=0)
    partition = new_partition(config)
    partition.apply(plan_batches(partition, [batch(size=KIB)], START_MS))
    assert why_held(partition.bodies, partition.head, partition.settings, START_MS, {}).hold is Hold.LAST


@pytest.mark.parametrize("is_flushed", [False, True])
def test_the_open_head_of_a_table_does_not_go_by_age_but_that_of_an_idle_one(is_flushed: bool) -> None:
    partition = new_partition(replace(TopicConfig(), retention_ms=KEPT_MS))
    partition.settings = replace(partition.settings, keeps_open_head=True)
    partition.apply(plan_batches(partition, [batch(size=KIB)], START_MS))
    if is_flushed:
        partition.apply(plan_close(partition, START_MS))
    due_ms = KEPT_MS if is_flushed else AUTO_FLUSH_MS
    for age_ms in (KEPT_MS, AUTO_FLUSH_MS - 1, AUTO_FLUSH_MS):
        held = why_held(partition.bodies, partition.head, partition.settings, START_MS + age_ms, {})
        if age_ms < due_ms:
            assert (held.hold, held.until_ms) == (Hold.YOUNG, START_MS + due_ms)
        elif partition.start_offset == 0:
            assert held.hold is Hold.DUE
        assert start_after(partition, START_MS + age_ms, {}) == (age_ms >= due_ms)


def test_an_empty_partition_holds_nothing() -> None:
    partition = new_partition()
    assert why_held(partition.bodies, partition.head, partition.settings, START_MS, {}).hold is Hold.EMPTY


async def commit(node: Node, group_id: str, offset: int) -> None:
    outcomes = await node.topics.offsets.commit(group_id, {("t", 0): ConsumerOffset(offset, commit_ms=node.now_ms)})
    assert outcomes == {("t", 0): None}


async def served(**config: str) -> tuple[Node, PartitionServer]:
    node = await Node().start()
    return node, await node.topic(config={name.replace("_", "."): value for name, value in config.items()})


@pytest.mark.spec("G.2")
async def test_a_commit_of_an_important_group_lets_expired_data_go() -> None:
    node, partition = await served(pq_important_groups="a, b", retention_ms="1000")
    await write(partition, *(batch(size=MIB) for _ in range(7)))
    node.now_ms += 1000
    await commit(node, "a", 7)
    await node.topics.retain(nobody_knows)
    assert partition.start_offset == 0
    assert partition.retention.why_held().groups == ("b",)
    await commit(node, "b", 7)
    await node.topics.retain(nobody_knows)
    assert partition.start_offset == partition.end_offset == 7
    await node.restart()
    assert (node.partition().start_offset, node.partition().end_offset) == (7, 7)


@pytest.mark.spec("A.11", "H6", "H7", "K.1", "J.1")
async def test_read_data_goes_as_soon_as_the_last_important_group_commits() -> None:
    node, partition = await served(pq_important_groups="a,b", pq_delete_when_read="true")
    await write(partition, *(batch(size=MIB) for _ in range(7)))
    for group_id in ("a", "b", "c"):
        await commit(node, group_id, 6 if group_id == "a" else 7)
    await partition.retention.delete_before(0)
    assert partition.start_offset == 6
    await commit(node, "a", 7)
    await partition.retention.delete_before(0)
    assert partition.start_offset == 7


@pytest.mark.spec("A.12.1", "G.2", "G.5", "H9")
async def test_a_full_partition_takes_writes_again_after_an_important_group_has_read_it() -> None:
    node, partition = await served(pq_important_groups="a", pq_delete_when_read="true", pq_max_count_in_partition="10")
    await write(partition, *(batch(b"x") for _ in range(10)))
    with pytest.raises(Exception, match=r"pq\.max\.count\.in\.partition=10"):
        await write(partition, batch(b"y"))
    await commit(node, "a", 10)
    assert (await write(partition, batch(b"y")))[0].base_offset == 10
