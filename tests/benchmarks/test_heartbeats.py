"""Heartbeats in small: the benchmark brings its groups to rest, and a heartbeat then changes nothing."""

from pathlib import Path

from tests.benchmarks.heartbeats import HEADER, measure


def test_it_measures_groups_at_rest(tmp_path: Path) -> None:
    cost = measure(2, 10, tmp_path / "broker", beats=100, idle_s=0.1, starts=1)
    assert cost.rounds <= 10, "members hear of what they have, let go, take over, and hear nothing new"
    assert cost.left_rounds <= 2, "the others have what one left within two heartbeats"
    assert cost.beat_us >= 0
    assert len(cost.row()) == len(HEADER)
