"""Surveys of large tablets in which nothing changes take a small part of the time."""

import asyncio
from typing import Any

import pytest

from pqbroker.tables.serving.surveying import SURVEYS_PART, SurveyPace


class Tablet:
    """A tablet that changes on cue."""

    class Structure:
        changes = 7

    def __init__(self) -> None:
        self.structure = self.Structure()


async def test_an_unchanged_tablet_is_surveyed_the_more_seldom_the_longer_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, pace = [100.0], SurveyPace()
    large: Any = Tablet()
    small: Any = Tablet()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s[0])
    assert pace.is_due(large)
    pace.note(small, 7, now_s[0])
    pace.note(large, 7, now_s[0] - 0.1)
    assert pace.is_due(small)
    assert not pace.is_due(large)
    now_s[0] += 0.1 / SURVEYS_PART - 0.11
    assert not pace.is_due(large)
    large.structure.changes += 1
    assert pace.is_due(large)
    large.structure.changes -= 1
    now_s[0] += 0.02
    assert pace.is_due(large)
