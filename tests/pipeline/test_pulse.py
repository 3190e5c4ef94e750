"""A job's lines: what it waits for is repeated until the next report, unless it shall be quiet."""

import re
import threading
from collections.abc import Callable

import pytest

from pqbroker.pipeline.pulse import Pulse
from tests.support.waiting import wait_until


class Lines:
    """What was said, and a way to wait for it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._heard = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._heard:
            self.said.append(line)
            self._heard.notify_all()

    def wait(self, holds: Callable[[list[str]], object]) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: holds(self.said), 15)


def test_a_wait_is_named_at_once_and_again_until_it_ends() -> None:
    lines = Lines()
    with Pulse(lines, every_s=0.01) as pulse:
        pulse.wait_for("starting Spark")
        lines.wait(lambda said: len(said) > 2)
        pulse.say("batch 0")
        lines.wait(lambda said: said[-1].startswith("waiting"))
    assert lines.said[0] == "starting Spark"
    place = lines.said.index("batch 0")
    assert {re.sub(r"\d+ s$", "N s", line) for line in lines.said[1:place]} == {"starting Spark: N s"}
    assert {re.sub(r"\d+ s$", "N s", line) for line in lines.said[place + 1 :]} == {"waiting for records: N s"}


def test_a_quiet_job_reports_only() -> None:
    lines = Lines()
    with Pulse(lines, quiet=True, every_s=0.0) as pulse:
        pulse.wait_for("starting Spark")
        pulse.say("batch 0")
        pulse.wait_for("waiting")
    assert lines.said == ["batch 0"]


def test_the_repeating_ends_with_the_job() -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), Pulse(Lines()):
        raise KeyError
    wait_until(lambda: threading.active_count() == before, "the thread ended")
