"""Queues of writes: those of several tablets of which one is closed, and which writes share a commit."""

import pytest

from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving import writes
from tests.tables.serving.commit_bench import CommitBench, on_bench, play


@on_bench
async def test_what_failed_in_another_queue_is_drained_in_a_turn_of_the_loop(bench: CommitBench) -> None:
    """A caller asks until nothing waits, so each answer has to let the queue move on."""
    first, second = (bench.tablets[number].writes for number in (0, 1))
    await second.hold()
    written = bench.write_both({1: 10}, {1: 10})
    second.close(TableError("WRONG_STATE", "closed by the test", "None."))
    with pytest.raises(TableError, match="closed by the test"):
        await written
    assert first.waiting_count == 1
    for _ in range(5):
        await first.drained()
    assert first.waiting_count == 0
    second.start()
    await bench.write_both({1: 11}, {1: 11})
    assert await bench.read(0, 1) == await bench.read(1, 1) == 11


@pytest.mark.parametrize(("rows_max", "commits"), [(3, 1), (2, 4)])
def test_behind_a_write_of_many_rows_none_is_gathered(
    monkeypatch: pytest.MonkeyPatch, rows_max: int, commits: int
) -> None:
    monkeypatch.setattr(writes, "COMMIT_ROWS", rows_max)

    async def story(bench: CommitBench) -> None:
        cell = bench.cells[0]
        await bench.write(0, {0: 1})
        before = cell.stats().commits
        await bench.tablets[0].writes.hold()
        waiting = [bench.write(0, {number: 1, -number: 1}) for number in range(1, 5)]
        bench.tablets[0].writes.start()
        timestamps = [await each for each in waiting]
        assert len({*timestamps}) == len(waiting)
        assert cell.stats().commits == before + commits

    play(story)
