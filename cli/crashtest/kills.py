"""`kill -9` at random moments under load, also while the broker starts; and the ends of the logs, which only grow."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from pqbroker.cli.crashtest.book import Broken
from pqbroker.fixture.process import BrokerFailedError
from pqbroker.fixture.runner import Runner

UNDER_LOAD_MAX_S = 0.4
STARTING_MAX_S = 0.5
KILL_STARTING_EVERY = 4
_LOOK_EVERY_S = 0.02
_PROCESS_MAX_S = 10.0


class Load(Protocol):
    """Producers that write without a pause, over whatever happens to the broker."""

    def await_acknowledgements(self, count: int) -> None: ...

    def ends(self) -> dict[int, int]: ...


def crash(
    node: Runner,
    load: Load,
    source: random.Random,
    *,
    goes_on: Callable[[int], bool],
    start: Callable[[], object],
    read_ends: Callable[[], Mapping[int, int]],
) -> int:
    """Kill and start a broker as long as `goes_on` says so of the number of kills, which is returned.

    `start` starts it, `read_ends` asks it for the ends of the logs. Raises Broken.
    """
    ends: dict[int, int] = {}
    kills = 0
    while goes_on(kills):
        load.await_acknowledgements(1)
        _watch(read_ends, ends, source.uniform(0, UNDER_LOAD_MAX_S))
        node.kill()
        if kills % KILL_STARTING_EVERY == 1:
            _kill_while_it_starts(node, source.uniform(0, STARTING_MAX_S))
        for partition, end in load.ends().items():
            ends[partition] = max(ends.get(partition, 0), end)
        start()
        _advance(ends, read_ends())
        kills += 1
    load.await_acknowledgements(1)
    return kills


def _watch(read_ends: Callable[[], Mapping[int, int]], ends: dict[int, int], duration_s: float) -> None:
    """Follow the ends of the logs for a while."""
    deadline = time.monotonic() + duration_s
    while (left := deadline - time.monotonic()) > 0:
        _advance(ends, read_ends())
        time.sleep(min(_LOOK_EVERY_S, left))


def _advance(ends: dict[int, int], found: Mapping[int, int]) -> None:
    for partition, end in found.items():
        if end < ends.get(partition, 0):
            raise Broken(f"partition {partition}: the end went back to {end} from {ends[partition]}")
        ends[partition] = end


def _kill_while_it_starts(node: Runner, delay_s: float) -> None:
    """Start the broker and kill it some time after exec, ready or not."""

    def end_process() -> None:
        deadline = time.monotonic() + _PROCESS_MAX_S
        while not node.running and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S / 10)
        time.sleep(delay_s)
        if node.running:  # else it could not start, as who starts it is told
            os.kill(node.pid, signal.SIGKILL)

    killer = threading.Thread(target=end_process)
    killer.start()
    try:
        node.start()
    except BrokerFailedError:
        killer.join()
        return
    killer.join()
    node.kill()
