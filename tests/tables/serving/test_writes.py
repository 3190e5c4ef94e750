"""Queues of writes: those of several tablets of which one is closed."""

import pytest

from pqbroker.tables.refusals import TableError
from tests.tables.serving.commit_bench import CommitBench, on_bench


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
