"""How long after exec a broker answers, apart from how long it waited for a core and how slow the core was."""

import time
from dataclasses import dataclass
from pathlib import Path

from pqbroker.fixture.runner import Runner
from tests.support.cpu_time import slowness
from tests.support.forked_brokers import executed
from tests.support.wire import LATEST, Wire


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from exec to the first answer, and how many of them the broker's main thread stood in line for a core.

    Limits are on `own_s`: what else runs on the machine, our own load included, is not the broker's doing, nor is a
    host that gives a virtual machine half a core.
    """

    wall_s: float
    waited_s: float
    slowness: float = 1.0
    """How many times longer a fixed piece of work took then than on an ordinary core."""

    @property
    def own_s(self) -> float:
        """The seconds that are the broker's own, on an ordinary core."""
        return (self.wall_s - self.waited_s) / self.slowness


def start(node: Runner, topic: str) -> Start:
    """Start the broker and ask it for the end of a topic's first partition, be there such a topic or not."""
    before = slowness()
    begin = time.monotonic()
    with executed():
        node.start()
    with Wire(node.kafka) as wire:
        wire.offset(topic, 0, LATEST)
    return Start(time.monotonic() - begin, _waited_s(node.pid), max(before, slowness()))


def _waited_s(pid: int) -> float:
    """Linux counts it, in nanoseconds, second of three figures; elsewhere nothing does."""
    try:
        figures = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return 0.0
    return int(figures[1]) / 1e9
