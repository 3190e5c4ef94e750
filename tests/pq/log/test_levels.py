"""The head's levels and its closing, as numbers only (semantics A.5, A.6, K.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.head import lay_out
from pqbroker.pq.log.levels import (
    BORDERS,
    HEAD_BLOB_BYTES_MAX,
    HEAD_KEYS_MAX,
    Levels,
    Placement,
    check_levels,
    level_of,
)

KIB = 1 << 10
MIB = 1 << 20
LOW_WATERMARK = 6 * MIB


class CopyingHead:
    """The algorithm of A.6 on sizes alone, every merge a copy: what is written, and how many keys there are."""

    def __init__(self) -> None:
        self.blobs: list[int] = []
        self.levels = Levels()
        self.size = 0
        self.written = 0
        self.cycles = 0
        self.peak_keys = 0
        self.bodies: list[int] = []

    def cycle(self, *sizes: int) -> None:
        layout = lay_out(self.levels, self.size, sizes, LOW_WATERMARK)
        if layout.placement is None:
            self._close(list(sizes), layout.cuts)
        else:
            merged = layout.placement.merged
            size = sum(self.blobs[len(self.blobs) - merged :]) + sum(sizes)
            self.blobs[len(self.blobs) - merged :] = [size]
            self.size += sum(sizes)
            self.levels.add(layout.placement, size)
            self.written += size
        self.peak_keys = max(self.peak_keys, len(self.blobs))
        self.cycles += 1
        if self.cycles % 41 < 2:
            check_levels(self.blobs)

    def _close(self, sizes: list[int], cuts: list[int]) -> None:
        done, filled = 0, self.size
        for cut in cuts:
            self.bodies.append(filled + sum(sizes[done:cut]))
            done, filled = cut, 0
        rest = sum(sizes[done:])
        self.blobs = [rest] if rest else []
        self.size = rest
        self.levels = Levels(self.blobs)
        self.written += sum(self.bodies[-len(cuts) :]) + rest


def run_of(size: int, payload: int) -> CopyingHead:
    head = CopyingHead()
    for _ in range(payload // size):
        head.cycle(size)
    return head


@pytest.mark.spec("A.6", "K.1")
@pytest.mark.parametrize(
    ("size", "ratio", "peak_keys"),
    [(100, 3.42, 128), (KIB, 3.46, 111), (64 * KIB, 2.48, 48), (200 * KIB, 1.49, 30), (MIB, 1.83, 5)],
)
def test_copying_writes_what_the_oracle_table_says(size: int, ratio: float, peak_keys: int) -> None:
    head = run_of(size, 12 * MIB)
    assert head.written / (12 * MIB // size * size) == pytest.approx(ratio, abs=0.006)
    assert head.peak_keys == peak_keys


@pytest.mark.spec("A.6", "K.1")
@pytest.mark.parametrize(("size", "ratio"), [(100, 3.93), (200 * KIB, 1.97)])
def test_over_whole_cycles_copying_writes_what_k1_says(size: int, ratio: float) -> None:
    head = CopyingHead()
    payload = 0
    while len(head.bodies) < 1:
        head.cycle(size)
        payload += size
    assert head.written / payload == pytest.approx(ratio, abs=0.006)


@pytest.mark.spec("A.6", "K.1")
@pytest.mark.parametrize(("size", "ratio", "peak_keys"), [(1, 4.92, 204), (32, 3.95, 173)])
def test_tiny_blobs_are_written_as_the_oracle_table_says(size: int, ratio: float, peak_keys: int) -> None:
    """Every 128 KiB the lower levels are empty again: what one such period writes, all of them do."""
    period, top = 128 * KIB, LOW_WATERMARK - 128 * KIB
    head = CopyingHead()
    head.cycle(top)
    for _ in range(period // size - 1):
        head.cycle(size)
    written = head.written - top
    peak = head.peak_keys - 1 + top // period
    assert head.bodies == []
    head.cycle(size)
    assert (head.bodies, head.blobs) == ([LOW_WATERMARK], [])
    ordinary = run_of(size, period)
    assert ordinary.levels.sums == [0, 0, 0, period]
    assert written == ordinary.written - period
    periods = LOW_WATERMARK // period
    assert (periods * written + top + LOW_WATERMARK) / LOW_WATERMARK == pytest.approx(ratio, abs=0.006)
    assert peak == peak_keys


@pytest.mark.spec("A.5", "K.1")
@given(st.integers(0, 3), st.integers(LOW_WATERMARK, HEAD_BLOB_BYTES_MAX - 1), st.integers(17, 23))
def test_n_times_eight_mib_and_a_rest_of_the_low_watermark_are_never_rewritten(n: int, rest: int, bits: int) -> None:
    head = CopyingHead()
    sizes = [1 << bits] * (n * HEAD_BLOB_BYTES_MAX >> bits) + [rest]
    for cycle in range(1, 4):
        head.cycle(*sizes)
        assert head.written == cycle * (n * HEAD_BLOB_BYTES_MAX + rest)
        assert (head.bodies, head.blobs) == (([HEAD_BLOB_BYTES_MAX] * n + [rest]) * cycle, [])


@pytest.mark.spec("A.6")
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=300))
def test_every_blob_but_those_of_the_deepest_level_has_reached_the_border_below(sizes: list[int]) -> None:
    head = CopyingHead()
    for size in sizes:
        head.cycle(size)
        assert len(head.blobs) <= HEAD_KEYS_MAX
        for blob in head.blobs:
            level = level_of(blob)
            assert level == 0 or blob >= BORDERS[level - 1]
        assert all(total < border for total, border in zip(head.levels.sums, BORDERS, strict=True))


@pytest.mark.spec("A.6")
def test_the_worked_example_of_one_kib_blobs() -> None:
    head = CopyingHead()
    sums = {}
    for number in range(1, 6145):
        head.cycle(KIB)
        sums[number] = list(head.levels.sums)
    assert sums[1] == [0, KIB, 0, 0]
    assert sums[2] == [0, 0, 2 * KIB, 0]
    assert sums[128] == [0, 0, 0, 128 * KIB]
    assert sums[6144] == [0, 0, 0, 0]
    assert head.bodies == [6 * MIB]
    assert head.peak_keys == 111


@pytest.mark.spec("A.6")
def test_a_large_blob_climbs_at_once_and_rewrites_nothing() -> None:
    assert Levels().place(200 * KIB) == Placement(0, 3)


@pytest.mark.spec("A.5.5", "K.1")
def test_fifteen_mib_in_one_cycle_make_two_bodies_and_an_empty_head() -> None:
    head = CopyingHead()
    head.cycle(*[MIB] * 15)
    assert (head.bodies, head.blobs) == ([8 * MIB, 7 * MIB], [])


def test_a_rest_below_the_low_watermark_becomes_the_new_head() -> None:
    head = CopyingHead()
    head.cycle(*[MIB] * 10)
    assert (head.bodies, head.blobs) == ([8 * MIB], [2 * MIB])


@pytest.mark.spec("A.5.5", "K.1")
def test_reaching_the_low_watermark_exactly_closes_the_head() -> None:
    head = CopyingHead()
    head.cycle(LOW_WATERMARK - KIB)
    assert head.bodies == []
    head.cycle(KIB)
    assert (head.bodies, head.blobs) == ([LOW_WATERMARK], [])


def test_a_batch_that_does_not_fit_leaves_the_head_a_body_of_its_own() -> None:
    head = CopyingHead()
    head.cycle(5 * MIB)
    head.cycle(4 * MIB)
    assert (head.bodies, head.blobs) == ([5 * MIB], [4 * MIB])


@given(st.lists(st.lists(st.integers(1, 3 * MIB), min_size=1, max_size=4), max_size=60))
def test_the_head_keeps_its_invariants_and_loses_no_byte(cycles: list[list[int]]) -> None:
    head = CopyingHead()
    for sizes in cycles:
        head.cycle(*sizes)
        assert all(size <= HEAD_BLOB_BYTES_MAX for size in head.bodies)
    assert sum(head.bodies) + sum(head.blobs) == sum(map(sum, cycles))


@given(st.lists(st.integers(1, 200_000), max_size=200))
def test_levels_are_the_same_after_a_restart(sizes: list[int]) -> None:
    head = CopyingHead()
    for size in sizes:
        head.cycle(size)
    again = Levels(head.blobs)
    assert (again.sums, again.counts) == (head.levels.sums, head.levels.counts)


def test_a_blob_lies_on_the_first_level_whose_border_exceeds_it() -> None:
    assert [level_of(size) for size in (1, 31, 32, 2047, 2048, 131_071, 131_072)] == [0, 0, 1, 1, 2, 2, 3]
