"""Tasks of background work: the history of those that run and have ended, totals, write amplification."""

import pytest

from pqbroker.tables.serving.tasks import ENDED_KEPT, FLUSH, TaskHistory, TaskRecord, TaskTotals, amplification_of

MEGABYTE = 1_000_000


class Staged:
    """Work that has written some bytes."""

    def __init__(self, bytes_written: int) -> None:
        self.bytes_written = bytes_written


def ended(kind: str, size: int, failure: str = "") -> TaskRecord:
    return TaskRecord(kind, "t", 7, "regular", (1,), 0, bytes_read=size, bytes_written=size, failure=failure)


@pytest.mark.spec("C.2")
def test_one_chunk_of_100_mb_that_each_flush_of_1_mb_rewrites_costs_100_times() -> None:
    totals, other = TaskTotals(), TaskTotals()
    for _ in range(10):
        totals.count(ended(FLUSH, MEGABYTE))
        totals.count(ended("compaction", 50 * MEGABYTE))
        other.count(ended("partitioning", 50 * MEGABYTE))
    found = amplification_of([totals, other])
    assert found["amplification"] == 100
    assert found["flushed_bytes"] == 10 * MEGABYTE
    assert amplification_of([other])["amplification"] is None


def test_a_task_that_failed_counts_as_failed_and_its_bytes_do_not() -> None:
    totals = TaskTotals()
    totals.count(ended("compaction", 5, "no room"))
    totals.count(ended("compaction", 7))
    found = totals["compaction"]
    assert (found.done, found.failed, found.bytes_read, found.bytes_written) == (1, 1, 7, 7)


def test_a_task_runs_until_it_has_ended_and_the_last_ones_stay() -> None:
    history = TaskHistory()
    first = history.begin(ended(FLUSH, 0))
    first.staging = Staged(30)
    second = history.begin(ended(FLUSH, 0))
    assert list(history.running) == [1, 2]
    history.end(first, 5000)
    assert list(history.running.values()) == [second]
    assert (first.document(9000)["bytes_written"], first.document(9000)["bytes_per_s"]) == (30, 6)
    for _ in range(ENDED_KEPT):
        history.end(history.begin(ended(FLUSH, 0)), 0)
    assert (len(history.ended), history.ended[0].number) == (ENDED_KEPT, 3)
