"""What a worker makes of stretches that it is shown: each is read once; one that does not hold is asked for again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.tables.work.batches import RowRange
from pqbroker.tables.work.kept_columns import KeptColumns
from pqbroker.tables.work.messages import Line, Message
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.scanning import ALL_TIMES, ATTEMPTS_MAX, Origin, Tally, TopicScan, scan

ROWS = 40
AT_ONCE = 4
"""Batches that are shown at once."""


class Broker(Line):
    """Shows one batch of ten rows as a stretch, in files or in the payload; keeps what it was asked."""

    def __init__(self, directory: Path, *, in_files: bool = True) -> None:
        self.directory = directory
        self.in_files = in_files
        self.asked: list[tuple[int, bool]] = []
        for start in range(0, ROWS, 10):
            self.path(start).write_bytes(batch(start))

    def path(self, start: int) -> Path:
        return self.directory / str(start)

    def ask(self, kind: str, document: Any) -> Message:
        assert kind == "read"
        offset, is_verified = document["offset"], document["is_verified"]
        self.asked.append((offset, is_verified))
        first = offset // 10 * 10
        starts = range(first, min(document["end_offset"], first + 10 * (1 if is_verified else AT_ONCE)), 10)
        shown = [self.shown(start, in_files=self.in_files and not is_verified) for start in starts]
        payload = b"".join(batch(start) for start in starts if not self.in_files or is_verified)
        return Message("stretches", {"stretches": shown}, payload)

    def shown(self, start: int, *, in_files: bool) -> dict[str, Any]:
        size = len(batch(start))
        pieces = [[str(self.path(start)), 0, size]] if in_files else [size // 2, size - size // 2]
        return {"pieces": pieces, "next_offset": start + 10, "blob": start, "bounds": [start, start + 10]}


def batch(start: int) -> bytes:
    return bytes(encode_batch([Record(0, 1, None, b"%d" % (start + row)) for row in range(10)], base_offset=start))


def read(
    broker: Broker,
    spans: Sequence[RowRange] = (RowRange(0, 0, ROWS),),
    kept: KeptColumns | None = None,
    revisions: Sequence[str] = (),
) -> list[int]:
    wanted = TopicScan("t", spans, ("$row_index", "value"), ALL_TIMES, origin=Origin("id", revisions))
    found = [row for part in scan(broker, wanted, Tally(), kept or KeptColumns()) for row in part.to_pylist()]
    assert all(row["value"] == b"%d" % row["$row_index"] for row in found)
    return [row["$row_index"] for row in found]


@pytest.mark.parametrize("in_files", [True, False])
def test_stretches_that_are_shown_at_once_are_read_one_by_one(tmp_path: Path, in_files: bool) -> None:
    broker = Broker(tmp_path, in_files=in_files)
    assert read(broker) == list(range(ROWS))
    assert broker.asked == [(0, False)]


def test_what_was_shown_of_one_span_is_not_read_for_another(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    assert read(broker, [RowRange(0, 15, 17), RowRange(0, 33, 36), RowRange(1, 30, 32)]) == [15, 16, 33, 34, 35, 30, 31]
    assert broker.asked == [(15, False), (33, False), (30, False)]


def test_rows_that_are_kept_are_passed_over(tmp_path: Path) -> None:
    broker, kept = Broker(tmp_path), KeptColumns()
    kept.begin(1 << 20)
    assert read(broker, [RowRange(0, 10, 20)], kept) == list(range(10, 20))
    assert read(broker, kept=kept) == list(range(ROWS))
    assert broker.asked == [(10, False), (0, False)]


def test_rows_that_were_kept_before_a_cleaner_took_some_out_are_not_used(tmp_path: Path) -> None:
    broker, kept = Broker(tmp_path), KeptColumns()
    kept.begin(1 << 20)
    for revision in ("1.0", "1.0", "1.1", "2.0"):
        read(broker, kept=kept, revisions=[revision])
    assert broker.asked == [(0, False)] * 3


def test_rows_are_not_kept_where_earlier_ones_may_be_left_out(tmp_path: Path) -> None:
    broker, kept = Broker(tmp_path), KeptColumns()
    kept.begin(1 << 20)
    wanted = TopicScan("t", [RowRange(0, 10, 20)], ("$row_index", "value"), timestamp_min=1)
    for _ in "12":
        assert sum(part.num_rows for part in scan(broker, wanted, Tally(), kept)) == 10
    assert broker.asked == [(10, False)] * 2


@pytest.mark.parametrize(("least", "most", "is_read"), [(-1, 1, True), (0, 0, True), (1, 9, False), (-9, -1, False)])
def test_rows_are_left_out_when_none_was_committed_at_such_a_time(
    tmp_path: Path, least: int, most: int, *, is_read: bool
) -> None:
    """Every batch names the same time, which commits are compared with here."""
    times = timestamp_of(1) + least, timestamp_of(1) + most
    wanted = TopicScan("t", [RowRange(0, 0, ROWS)], ("$row_index", "$timestamp"), ALL_TIMES, commits=times)
    found = [row for part in scan(Broker(tmp_path), wanted, Tally(), KeptColumns()) for row in part.to_pylist()]
    assert [row["$row_index"] for row in found] == (list(range(ROWS)) if is_read else [])


def test_a_file_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.path(20).unlink()

    def ask(kind: str, document: Any) -> Message:
        if document["offset"] == 20:
            broker.path(20).write_bytes(batch(20))  # it lies elsewhere by now
        return Broker.ask(broker, kind, document)

    broker.ask = ask  # type: ignore[method-assign]
    assert read(broker) == list(range(ROWS))
    assert broker.asked == [(0, False), (20, False)]


def test_a_damaged_stretch_is_asked_for_as_verified_and_the_next_are_not(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.path(10).write_bytes(batch(10)[:-1] + b"?")
    assert read(broker) == list(range(ROWS))
    assert broker.asked == [(0, False), (10, True), (20, False)]


def test_a_file_that_stays_away_ends_the_query(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.path(30).unlink()
    with pytest.raises(QueryRefused) as refused:
        read(broker)
    assert refused.value.code == "CORRUPT_MESSAGE"
    assert len(broker.asked) == ATTEMPTS_MAX
