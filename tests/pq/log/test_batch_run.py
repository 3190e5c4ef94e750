"""Runs of batches in memory: found by offset, cut at batch borders, never moved."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.batch_run import OWN_BUFFER_BYTES_MIN, GrowingRun, Run
from pqbroker.protocol import records
from tests.pq.rig import KIB, batch

sizes_of_batches = st.lists(st.sampled_from([70, 75, 300, 1500, 40_000, 70_000]), min_size=1, max_size=60)


def filled(
    sizes: list[int], counts: list[int] | None = None, hole: int = 0
) -> tuple[GrowingRun, list[tuple[int, int, int]]]:
    """A run of batches of the sizes, and (position, offset, end offset) of each; `hole` offsets are left out between
    batches."""
    run = GrowingRun(0)
    layout = []
    offset = 0
    for number, size in enumerate(sizes):
        count = counts[number] if counts else 1
        view, _ = batch(*[b"v" * max(size // count - 75, 1)] * count)
        records.stamp(view, offset, 1)
        layout.append((run.end, offset, offset + count))
        run.append(view, offset, offset, not number)
        offset += count + hole
    return run, layout


@given(sizes_of_batches)
def test_every_offset_is_found_at_its_batch(sizes: list[int]) -> None:
    run, layout = filled(sizes, [3] * len(sizes))
    for position, offset, end in layout:
        assert {run.locate(each, run.end) for each in range(offset, end)} == {position}
    assert run.locate(layout[-1][2], run.end) == run.end


@given(sizes_of_batches)
def test_an_offset_in_a_hole_finds_the_next_batch(sizes: list[int]) -> None:
    run, layout = filled(sizes, hole=2)
    for (_, _, end), (position, _, _) in pairwise(layout):
        assert run.locate(end, run.end) == position


@given(sizes_of_batches, st.integers(0, 200_000), st.integers(0, 59))
def test_a_read_is_whole_batches_within_its_bytes(sizes: list[int], bytes_max: int, at: int) -> None:
    run, layout = filled(sizes)
    start, offset, _ = layout[at % len(layout)]
    pieces = run.read(offset, bytes_max, False, run.end, layout[-1][2])
    borders = [position for position, _, _ in layout] + [run.end]
    assert pieces.size <= bytes_max
    assert start + pieces.size == max(border for border in borders if border <= start + bytes_max)
    assert pieces.next_offset == borders.index(start + pieces.size)
    assert b"".join(pieces.in_memory()) == b"".join(run.slices(0, run.end))[start : start + pieces.size]


def test_the_first_batch_comes_even_if_it_is_too_large() -> None:
    run, _ = filled([1500, 1500])
    assert run.read(0, 10, True, run.end, 2).next_offset == 1
    assert run.read(0, 10, False, run.end, 2).buffers == []


def test_a_batch_that_ends_exactly_at_the_limit_comes_too() -> None:
    run, layout = filled([300] * 9)
    assert run.read(1, layout[3][0] - layout[1][0], False, run.end, 9).next_offset == 3


def test_small_batches_side_by_side_are_one_view() -> None:
    run, layout = filled([300] * 12)
    assert len(run.slices(0, layout[10][0])) == 1


def test_a_large_batch_keeps_its_own_buffer() -> None:
    view, _ = batch(size=OWN_BUFFER_BYTES_MIN + 100)
    run = GrowingRun(0)
    run.append(view, 0, 0, True)
    (kept,) = run.slices(0, run.end)
    assert kept.obj is view.obj  # type: ignore[union-attr]


def test_the_lesser_part_of_a_large_buffer_is_copied() -> None:
    view, _ = batch(size=OWN_BUFFER_BYTES_MIN + 100)
    frame = bytearray(4 * len(view))
    frame[: len(view)] = view
    run = GrowingRun(0)
    run.append(memoryview(frame)[: len(view)], 0, 0, True)
    (kept,) = run.slices(0, run.end)
    assert kept.obj is not frame  # type: ignore[union-attr]
    assert kept == view


def test_an_idle_run_of_one_small_batch_holds_four_kib() -> None:
    run, _ = filled([100])
    assert run.held == 4 * KIB


@given(sizes_of_batches, st.integers(1, 59), sizes_of_batches)
def test_what_is_truncated_leaves_no_trace(sizes: list[int], keep: int, more: list[int]) -> None:
    keep = min(keep, len(sizes))
    run, _ = filled(sizes[:keep])
    before = b"".join(run.slices(0, run.end)), list(run.positions), list(run.stamps)
    end = run.end
    view, _ = batch(size=500)
    for number, _ in enumerate(more):
        run.append(view, 1000 + number, 10**9, not number)
    run.truncate(end)
    assert (b"".join(run.slices(0, run.end)), list(run.positions), list(run.stamps)) == before
    run.append(view, 1000, 0, True)
    assert b"".join(run.slices(0, run.end)) == before[0] + bytes(view)


@given(sizes_of_batches, st.integers(0, 60))
def test_dropping_the_front_leaves_the_rest_readable(sizes: list[int], count: int) -> None:
    run, layout = filled(sizes)
    content = b"".join(run.slices(0, run.end))
    border = ([position for position, _, _ in layout] + [run.end])[min(count, len(layout))]
    run.drop_before(border)
    assert b"".join(run.slices(border, run.end)) == content[border:]
    for position, offset, _ in layout[count:]:
        assert run.locate(offset, run.end) == position


def test_views_served_stay_as_they_are_when_the_run_goes_on() -> None:
    run, _ = filled([300] * 5)
    served = run.slices(0, run.end)
    content = b"".join(served)
    run.truncate(run.end)
    for number in range(200):
        run.append(batch(size=400)[0], 5 + number, 0, not number)
    run.clear()
    assert b"".join(served) == content


@given(sizes_of_batches, st.sampled_from([1, 1024, 32 * KIB]))
def test_a_thinned_index_bounds_the_timestamps_behind_each_entry(sizes: list[int], gap: int) -> None:
    run, layout = filled(sizes)
    positions, offsets, stamps = run.index_between(0, run.end, 0, gap)
    assert positions[0] == 0
    assert list(positions) == sorted(set(positions))
    for number, position in enumerate(positions):
        stop = positions[number + 1] if number + 1 < len(positions) else run.end
        inside = [offset for at, offset, _ in layout if position <= at < stop]
        assert offsets[number] == inside[0]
        assert stamps[number] == max(inside)


def test_content_loaded_later_comes_before_what_is_there() -> None:
    whole, layout = filled([300] * 10)
    border = layout[4][0]
    front = GrowingRun(0)
    back = GrowingRun(border)
    for position, offset, _ in layout:
        part = memoryview(bytes(whole.batch(position)))
        (front if position < border else back).append(part, offset, offset, position in (0, border))
    back.prepend(front)
    assert b"".join(back.slices(0, back.end)) == b"".join(whole.slices(0, whole.end))
    assert [back.locate(offset, back.end) for _, offset, _ in layout] == [position for position, _, _ in layout]


@pytest.mark.parametrize("cut", [100, 5000])
def test_a_page_may_lie_in_several_buffers(cut: int) -> None:
    whole, layout = filled([300] * 30)
    content = b"".join(whole.slices(0, whole.end))
    border = max(position for position, _, _ in layout if position <= cut)
    columns = whole.positions, whole.offsets, whole.stamps
    page = Run.page([content[:border], content[border:]], 0, columns, 30)
    assert b"".join(page.read(0, len(content), True, page.end, 30).in_memory()) == content
