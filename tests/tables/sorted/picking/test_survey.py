"""All of a tablet's tasks: their order, and what they lead to (C.5, C.6, the seed's scenarios)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.conf.sorted_attributes import sorted_in_force
from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.tables.sorted.picking.choice import LeftOut, PickReason
from pqbroker.tables.sorted.picking.facts import TabletStores, partition_of
from pqbroker.tables.sorted.picking.major_timestamp import major_timestamp
from pqbroker.tables.sorted.picking.survey import ChunkTask, TaskKind, in_order, survey
from pqbroker.tables.sorted.write_refusals import WriteFacts, write_refusal
from tests.support.cpu_time import least_s
from tests.support.depth import examples
from tests.tables.sorted.picking.stores import DAY, KEYS_END, MIB, NOW, chunk, chunks, numbers, store, tablet
from tests.tables.sorted.picking.structure import Structure

pytestmark = pytest.mark.spec("C.5", "C.6", "C.9")


def tasks(whole: TabletStores, now_ms: int = NOW) -> list[ChunkTask]:
    return in_order(survey(whole, now_ms).tasks())


def test_the_least_slack_comes_first() -> None:
    left = [chunk(number, MIB, keys=(0, 9)) for number in range(4)]
    right = [chunk(number, MIB, keys=(40_000, 40_001)) for number in range(10, 13)]
    found = tasks(tablet(right, left, max_overlapping_store_count=10)), tasks(tablet(left, right))
    for each in found:
        assert [task.slack for task in each] == sorted(task.slack for task in each)
    assert [(task.slack, task.effect) for task in found[1]] == [(26, 3), (27, 2)]


def test_of_equal_slack_the_task_that_ends_more_chunks_comes_first_over_all_tablets() -> None:
    few = tablet([*chunks(MIB, MIB, MIB), chunk(9, 900 * MIB)])
    many = replace(tablet(chunks(*[MIB] * 4)), tablet_id=8)
    found = in_order([*survey(few, NOW).tasks(), *survey(many, NOW).tasks()])
    assert [(task.tablet_id, task.slack, task.effect) for task in found] == [(8, 26, 3), (7, 26, 2)]


def test_no_two_tasks_have_one_place() -> None:
    """Eden's two tasks, and that of the leftmost partition, which has Eden's pivot."""
    whole = tablet(chunks(*[MIB] * 3), [], eden=chunks(*[30 * MIB] * 6, first=10), max_partitioning_store_count=3)
    found = tasks(whole)
    assert [(task.slack, task.effect) for task in found[:2]] == [(found[0].slack, 2), (found[0].slack, 2)]
    assert len({task.place for task in found}) == len(found) == 3


def test_slack_goes_by_the_critical_overlap() -> None:
    (task,) = tasks(tablet(chunks(*[MIB] * 4), critical_overlapping_store_count=6))
    assert task.slack == 2
    (task,) = tasks(tablet(chunks(*[MIB] * 4), critical_overlapping_store_count=3))
    assert task.slack == 0


def test_eden_near_its_own_limit_has_less_slack() -> None:
    apart = [chunk(number, MIB, keys=(number, number)) for number in range(50)]
    (task,) = tasks(tablet([], [], eden=apart))
    assert task.slack == 15
    (task,) = tasks(tablet([], [], eden=apart, max_eden_stores_per_tablet=50))
    assert task.slack == 0


def test_partitioning_and_compaction_of_eden_take_different_chunks() -> None:
    found = survey(tablet([], [], eden=chunks(*[20 * MIB] * 8)), NOW)
    assert len(found.partitioning.inputs) == 5
    assert len(found.eden.inputs) == 3
    assert {*found.partitioning.numbers, *found.eden.numbers} == set(range(1, 9))
    assert {found.eden.left_out[number] for number in found.partitioning.numbers} == {LeftOut.BUSY}


def test_expired_chunks_are_dropped_and_not_compacted() -> None:
    stamp = timestamp_of(NOW - DAY)
    held = [chunk(number, MIB, least_timestamp=stamp, greatest_timestamp=stamp) for number in range(4)]
    (task,) = tasks(tablet(held, min_data_versions=0))
    assert (task.kind, task.choice.reason, task.effect) == (TaskKind.DISCARD, PickReason.EXPIRED, 4)


def test_the_switch_turns_every_task_off_and_the_survey_still_explains() -> None:
    whole = tablet(chunks(*[MIB] * 4), enable_compaction_and_partitioning=False)
    assert tasks(whole) == []
    assert len(survey(whole, NOW).partitions[0].inputs) == 4


def test_the_overlap_of_a_tablet_is_that_of_its_worst_partition() -> None:
    right = [chunk(number, keys=(40_000, 50_000)) for number in (2, 3)]
    found = survey(tablet([chunk(1, keys=(0, 1))], right), NOW)
    assert found.overlap.count == 2
    assert [each.count for each in found.overlaps] == [1, 2]


def refusal(structure: Structure) -> str | None:
    whole = structure.tablet
    facts = WriteFacts(structure.overlap, whole.chunk_count, len(whole.eden), 1, store())
    error = write_refusal(facts, whole.attributes)
    return None if error is None else error.code


def test_writes_stop_at_30_chunks_over_one_key_and_come_back_with_compaction() -> None:
    structure = Structure(tablet(enable_compaction_and_partitioning=False), NOW)
    for count in range(30):
        assert structure.overlap == count
        assert refusal(structure) is None
        structure.flush(MIB)
        structure.run(1)
    assert refusal(structure) == "TOO_MANY_OVERLAPPING_STORES"
    structure.tablet = replace(structure.tablet, attributes=sorted_in_force({}))
    assert structure.step()
    assert structure.overlap == 26
    assert refusal(structure) is None


def test_one_100_mb_chunk_compacted_with_each_flush_of_1_mb_costs_100_times() -> None:
    greedy = Structure(tablet(chunks(100 * MIB), compaction_data_size_ratio=1e6, min_compaction_store_count=2), NOW)
    for _ in range(20):
        greedy.flush(MIB)
        greedy.run(5)
    assert len(greedy.done) == 20
    assert 100 <= greedy.amplification <= 120
    usual = Structure(tablet(chunks(100 * MIB)), NOW)
    for _ in range(20):
        usual.flush(MIB)
        usual.run(5)
    assert usual.amplification < 5
    assert usual.overlap < 10


def spread(**attributes: Any) -> Structure:
    """Return a tablet of 100 partitions after 20 flushes of 40 MB over all its keys."""
    held = [[chunk(number, 200 * MIB, keys=(number * 655 + 200, number * 655 + 201))] for number in range(100)]
    structure = Structure(tablet(*held, **attributes), NOW)
    for _ in range(20):
        structure.flush(40 * MIB)
        while structure.step():
            pass
    return structure


def test_stores_of_tens_of_mb_over_100_partitions_make_chunks_below_1_mb() -> None:
    structure = spread()
    made = [each for each in structure.done if each.kind is TaskKind.PARTITIONING]
    assert made
    assert all(each.choice.compressed_bytes / 100 < MIB for each in made)


def test_a_larger_least_size_of_partitionings_makes_larger_chunks_and_more_overlap() -> None:
    usual = spread()
    patient = spread(min_partitioning_data_size=300 * MIB)
    sizes = [
        [each.choice.compressed_bytes for each in structure.done if each.kind is TaskKind.PARTITIONING]
        for structure in (usual, patient)
    ]
    assert min(sizes[1]) >= 300 * MIB > max(sizes[0])
    assert len(sizes[1]) < len(sizes[0])
    assert len(patient.tablet.eden) > len(usual.tablet.eden)


def test_without_writes_old_data_stays_until_a_period_is_set() -> None:
    """Chunks that are stable are compacted no more, whatever max_data_ttl says."""
    held = chunks(MIB, 20 * MIB, 200 * MIB)
    structure = Structure(tablet(held), NOW + 1000 * DAY)
    structure.run(1)
    assert structure.done == []
    period = sorted_in_force({"auto_compaction_period": DAY})
    structure.tablet = replace(structure.tablet, attributes=period)
    structure.run(2)
    (task,) = structure.done
    assert task.choice.reason is PickReason.PERIODIC
    assert numbers(task.choice.inputs) == [1, 2, 3]
    assert major_timestamp(tablet(held), task.choice.numbers) == tablet().barrier


def test_each_chunk_is_compacted_at_least_once_in_a_period_with_its_splay() -> None:
    held = [[chunk(number, 200 * MIB, keys=(number * 655 + 200, number * 655 + 201))] for number in range(100)]
    structure = Structure(tablet(*held, auto_compaction_period=DAY), NOW)
    counts = []
    for hour in range(24, 33):
        structure.now_ms = NOW + hour * DAY // 24
        before = len(structure.done)
        structure.run(200)
        counts.append(len(structure.done) - before)
    assert sum(counts) == 100
    assert max(counts) < 40


def test_a_forced_wave_compacts_every_chunk_once() -> None:
    held = [[chunk(number, 200 * MIB, keys=(number * 655 + 200, number * 655 + 201))] for number in range(100)]
    eden = [chunk(number, 10 * MIB) for number in range(100, 104)]
    whole = tablet(*held, eden=eden, forced_compaction_revision=200)
    structure = Structure(whole, NOW, next_number=200)
    structure.run(200)
    taken = [number for task in structure.done for number in task.choice.numbers]
    assert sorted(number for number in taken if number < 200) == list(range(104))
    assert {task.choice.reason for task in structure.done[:101]} == {PickReason.FORCED}


def test_deletions_in_eden_reach_their_rows_in_mode_partition_without_any_write() -> None:
    """Eden's chunk becomes due, is partitioned, and the next period has it with the chunk below it."""
    below = [chunk(1, 100 * MIB, keys=(0, 9))]
    attributes: dict[str, Any] = {"auto_compaction_period": DAY, "periodic_compaction_mode": "partition"}
    structure = Structure(tablet(below, [], eden=[chunk(2, MIB)], min_partition_data_size=1, **attributes), NOW)
    for day in range(1, 6):
        structure.now_ms = NOW + 2 * day * DAY
        structure.run(10)
    assert structure.tablet.eden == ()
    assert [len(each.chunks) for each in structure.tablet.partitions] == [1, 1]
    whole = [task for task in structure.done if task.choice.reason is PickReason.WHOLE_PARTITION]
    assert max(len(task.choice.inputs) for task in whole) == 2


RANGES = st.tuples(st.integers(0, KEYS_END - 1), st.integers(0, KEYS_END - 1)).map(lambda pair: (min(pair), max(pair)))
SIZES = st.sampled_from([1, 1000, MIB, 5 * MIB, 50 * MIB, 63 * MIB, 64 * MIB, 90 * MIB, 300 * MIB, 900 * MIB])


@settings(max_examples=examples(400))
@given(
    st.lists(st.tuples(SIZES, RANGES), max_size=25),
    st.integers(1, 5),
    st.sampled_from([2, 3, 5, 30]),
    st.sampled_from([2, 5, 100]),
    st.sampled_from([1, 4]),
)
def test_work_ends_and_leaves_no_tablet_blocked(
    made: list[tuple[int, tuple[int, int]]], partitions: int, overlap_max: int, eden_max: int, least: int
) -> None:
    """No limit holds writes back for ever, and no split, merge or compaction undoes another one."""
    attributes: dict[str, Any] = {
        "max_overlapping_store_count": overlap_max, "max_eden_stores_per_tablet": eden_max,
        "min_partitioning_store_count": least, "max_partitioning_store_count": 5,
    }  # fmt: skip
    structure = Structure(tablet(*[[] for _ in range(partitions)], **attributes), NOW)
    for size, keys in made:
        structure.flush(size, keys)
    structure.run(500)
    assert structure.overlap < overlap_max
    assert len(structure.tablet.eden) < eden_max
    assert refusal(structure) is None
    pivots = [each.pivot for each in structure.tablet.partitions]
    for index, each in enumerate(structure.tablet.partitions):
        assert all(partition_of(held.first_key, held.last_key, pivots, None) == index for held in each.chunks)


def test_a_look_at_a_hundred_partitions_takes_little_of_a_turn() -> None:
    ranges = [(number * 655 + 200, number * 655 + 600) for number in range(100)]
    held = [[chunk(number * 5 + each, MIB, keys=keys) for each in range(5)] for number, keys in enumerate(ranges)]
    whole = tablet(*held, eden=[chunk(1000 + number) for number in range(20)])
    assert survey(whole, NOW).overlap.count == 25
    assert least_s(lambda: survey(whole, NOW), 0.02) < 0.02
