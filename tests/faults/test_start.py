"""The broker is ready within a second of exec and small when idle."""

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pqbroker.fixture.process import BrokerProcess
from tests.faults.exec_time import Start, start
from tests.support.crowding import Crowding

TRIES = 5
READY_MAX_S = 1.0
RESIDENT_MAX_BYTES = 80 << 20


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Start, int]]:
    """Starts on empty directories, with the resident bytes of the idle broker, until one keeps to both limits."""
    found = list[tuple[Start, int]]()
    while len(found) < TRIES and not any(is_good(*one) for one in found):
        found.append(start_on_empty(tmp_path_factory.mktemp("start")))
    return found


def is_good(started: Start, resident_bytes: int) -> bool:
    return started.own_s < READY_MAX_S and resident_bytes < RESIDENT_MAX_BYTES


def start_on_empty(directory: Path) -> tuple[Start, int]:
    """One start."""
    log_file = directory / "log"
    log_file.touch()
    node = BrokerProcess(directory / "data", {}, log_file, "info")
    try:
        with Crowding() as crowding:
            started = start(node, "none")
        started = replace(started, slowness=started.slowness * crowding.crowd)
        return started, psutil.Process(node.pid).memory_info().rss
    finally:
        node.kill()


def test_an_empty_directory_is_served_within_a_second_of_exec(starts: list[tuple[Start, int]]) -> None:
    assert min(started.own_s for started, _ in starts) < READY_MAX_S, starts


def test_an_idle_broker_is_small(starts: list[tuple[Start, int]]) -> None:
    assert min(resident for _, resident in starts) < RESIDENT_MAX_BYTES, starts
