"""A relay's memory and its pace, without Spark."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, lists, tuples

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.relays.journal import Begun, Journal
from pqbroker.pipeline.relays.sending import Pace


def test_a_batch_is_remembered(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    assert journal.last() is None
    for begun in (Begun(0, {"0": 5, "1": 7}), Begun(0, {"0": 5, "1": 7}, is_done=True), Begun(1, {"0": 9})):
        journal.note(begun)
        assert Journal(tmp_path / "state").last() == begun


def test_a_directory_keeps_its_job_and_refuses_another(tmp_path: Path) -> None:
    first = Journal(tmp_path).claim({"topic": "orders"})
    assert Journal(tmp_path).claim({"topic": "orders"}) == first
    with pytest.raises(JobError, match=r"belongs to another job, of topic orders; name another with --state DIR"):
        Journal(tmp_path).claim({"topic": "others"})
    assert Journal(tmp_path / "second").claim({"topic": "orders"}) != first


@pytest.mark.parametrize("torn", ["", "{", '{"job'])
def test_a_memory_that_is_unreadable_is_named(tmp_path: Path, torn: str) -> None:
    (tmp_path / "job.json").write_text(torn)
    with pytest.raises(JobError, match=r"job\.json is unreadable"):
        Journal(tmp_path).claim({"topic": "orders"})


def test_what_was_noted_is_whole_in_the_file(tmp_path: Path) -> None:
    Journal(tmp_path).note(Begun(3, {"0": 1}))
    assert json.loads((tmp_path / "batch.json").read_text()) == {"number": 3, "ends": {"0": 1}, "is_done": False}
    assert not (tmp_path / "batch.new").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"cannot write to .*/file/state: Not a directory; name another"):
        Journal(tmp_path / "file" / "state")


@given(rate=floats(0.5, 1e6), steps=lists(tuples(integers(1, 1000), floats(0, 5)), min_size=1, max_size=50))
def test_a_pace_is_never_above_its_rate(rate: float, steps: list[tuple[int, float]]) -> None:
    now, sent = 0.0, 0
    pace = Pace(rate, now)
    for records, idle_s in steps:
        now += idle_s + (wait_s := pace.wait_s(records, now + idle_s))
        assert wait_s >= 0
        assert sent <= rate * now * (1 + 1e-9) + 1e-6
        sent += records


def test_a_pace_does_not_save_up() -> None:
    pace = Pace(10.0, 0.0)
    assert [pace.wait_s(10, 0.0), pace.wait_s(10, 0.0), pace.wait_s(10, 100.0), pace.wait_s(10, 100.0)] == [0, 1, 0, 1]
