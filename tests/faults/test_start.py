"""The broker is ready within a second of exec and small when idle."""

import time
from pathlib import Path

import psutil
import pytest

from pqbroker.testing import broker
from tests.support.wire import LATEST, Wire

TRIES = 5
READY_MAX_S = 1.0
RESIDENT_MAX_BYTES = 80 << 20
UNKNOWN_TOPIC = 3


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[float, int]]:
    """(seconds from exec to the first answer, resident bytes when idle) of some starts on empty directories."""
    return [start(tmp_path_factory.mktemp("start") / "data") for _ in range(TRIES)]


def start(directory: Path) -> tuple[float, int]:
    """One start."""
    begin = time.monotonic()
    with broker(directory) as node, Wire(node.kafka) as wire:
        assert wire.offset("none", 0, LATEST)[0] == UNKNOWN_TOPIC
        ready_s = time.monotonic() - begin
        return ready_s, psutil.Process(node.pid).memory_info().rss


def test_an_empty_directory_is_served_within_a_second_of_exec(starts: list[tuple[float, int]]) -> None:
    best = min(ready_s for ready_s, _ in starts)
    assert best < READY_MAX_S, starts


def test_an_idle_broker_is_small(starts: list[tuple[float, int]]) -> None:
    best = min(resident for _, resident in starts)
    assert best < RESIDENT_MAX_BYTES, starts
