"""Events that are shown for some seconds: refusals, lost workers, slow rounds, jumps of the clock."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pqbroker.broker.services.health import recent as module
from pqbroker.broker.services.health.recent import Recent

SLOW_S = 1.0


@dataclass
class Scene:
    """Counters of a node, and its clocks."""

    recent: Recent = field(default_factory=Recent)
    now_s: float = 0.0
    jump_ms: int = 0
    refused: int = 0
    lost: int = 0
    round_s: float = 0.0
    retentions: int = 0

    def look(self, after_s: float = 0.5) -> Recent:
        """Look again some seconds later."""
        self.now_s += after_s
        counters = SimpleNamespace(workers_lost=0)
        cell = SimpleNamespace(round_seconds=self.round_s)
        current = SimpleNamespace(
            sorted_tables=SimpleNamespace(share=SimpleNamespace(counters=counters)),
            cells=SimpleNamespace(hosts=lambda: [(0, SimpleNamespace(cell=cell))]),
        )
        node: Any = SimpleNamespace(
            metrics=SimpleNamespace(connections_refused=self.refused, connections_gave_way=0, http_refused=0),
            workers=SimpleNamespace(counters=SimpleNamespace(workers_lost=self.lost)),
            searchers=SimpleNamespace(counters=counters),
            cleaner=SimpleNamespace(counters=counters),
            cell=SimpleNamespace(current=current, retentions=self.retentions),
            clock=lambda: int(1000 * self.now_s) + self.jump_ms,
        )  # fmt: skip
        self.recent.look(node, SLOW_S, self.now_s)
        return self.recent


def test_refusals_are_shown_for_some_seconds() -> None:
    scene = Scene()
    assert scene.look().refused_connections == 0
    scene.refused = 3
    assert scene.look().refused_connections == 3
    scene.refused = 5
    assert scene.look(5).refused_connections == 5
    assert scene.look(module.REFUSALS_SHOWN_S - 4).refused_connections == 2
    assert scene.look(module.REFUSALS_SHOWN_S).refused_connections == 0


def test_workers_count_as_failing_when_several_end_within_a_minute() -> None:
    scene = Scene(lost=module.LOST_WORKERS_MIN - 1)
    assert not scene.look().lost_workers
    scene.lost += 1
    assert scene.look().lost_workers == {"SQL queries": module.LOST_WORKERS_MIN}
    assert not scene.look(2 * module.LOST_WORKERS_SHOWN_S).lost_workers


def test_a_slow_round_is_shown_while_it_lasts_and_some_seconds_longer() -> None:
    scene = Scene(round_s=0.9)
    assert not scene.look().slow_rounds
    scene.round_s = 1.5
    assert scene.look().slow_rounds == {"cell 0": 1.5}
    scene.round_s = 90.0
    assert scene.look(88.5).slow_rounds == {"cell 0": 90.0}
    scene.round_s = 0.0
    assert scene.look(module.SLOW_ROUNDS_SHOWN_S / 2).slow_rounds == {"cell 0": 90.0}
    assert not scene.look(module.SLOW_ROUNDS_SHOWN_S).slow_rounds


def test_retention_is_late_since_its_last_look_has_ended() -> None:
    scene = Scene()
    assert scene.look(100).seconds_since_retention == 0
    assert scene.look(100).seconds_since_retention == 100
    scene.retentions = 1
    assert scene.look(0.5).seconds_since_retention == 0


def test_a_jump_of_the_clock_is_shown_with_its_direction_and_a_slow_look_is_none() -> None:
    scene = Scene()
    scene.look()
    assert scene.look(300).clock_jump_s == 0
    scene.jump_ms = -3_600_000
    assert scene.look().clock_jump_s == -3600
    assert scene.look(module.CLOCK_JUMP_SHOWN_S / 2).clock_jump_s == -3600
    assert scene.look(module.CLOCK_JUMP_SHOWN_S).clock_jump_s == 0
