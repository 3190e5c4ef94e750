"""How long after exec a broker answers, told apart from how long the machine let it wait for a core."""

import time
from dataclasses import dataclass
from pathlib import Path

from pqbroker.testing import Broker
from tests.support.wire import LATEST, Wire


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from exec to the first answer, and how many of them the broker's main thread stood in line for a core.

    Limits are on `own_s`: what else runs on the machine, our own load included, is not the broker's doing.
    """

    wall_s: float
    waited_s: float

    @property
    def own_s(self) -> float:
        """The seconds that are the broker's own."""
        return self.wall_s - self.waited_s


def start(node: Broker, topic: str) -> Start:
    """Start the broker and ask it for the end of a topic's first partition, be there such a topic or not."""
    begin = time.monotonic()
    node.start()
    with Wire(node.kafka) as wire:
        wire.offset(topic, 0, LATEST)
    return Start(time.monotonic() - begin, _waited_s(node.pid))


def _waited_s(pid: int) -> float:
    """Linux counts it, in nanoseconds, second of three figures; elsewhere nothing does."""
    try:
        figures = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return 0.0
    return int(figures[1]) / 1e9
