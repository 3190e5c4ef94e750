"""Several topics land in one session, each in a directory of its own."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.landing import Landing, matching
from pqbroker.pipeline.lakes.several import land_all
from tests.spark.lakes import Lander
from tests.spark.topics import Topics
from tests.support.drivers.driver import Message


def test_topics_by_name_and_pattern_land_side_by_side(
    topics: Topics, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    name = fresh_name()
    alone, several = f"{name}-alone", [f"{name}-a.one", f"{name}-a.two"]
    for topic in (alone, *several, f"{name}-a.one.dlq"):
        topics.client.create_topic(topic)
        topics.client.produce(topic, [Message(topic.encode())])
    jobs = [
        Landing(each, tmp_path / "lakes", topics.address, once=True, figures=tmp_path / "land.prom")
        for each in (alone, f"{name}-a.*")
    ]
    lines: list[str] = []
    land_all(topics.spark, jobs, lines.append, threading.Event())
    assert sorted(line.split("  ")[0] for line in lines) == sorted([alone, *several])
    assert sorted(path.name for path in (tmp_path / "lakes").iterdir()) == sorted([alone, *several])
    for topic in (alone, *several):
        landed = Lander(topics.spark, Landing(topic, tmp_path / "lakes" / topic, topics.address))
        assert landed.rows() == [(0, 0, topic.encode())]
        assert f'topic="{topic}"' in (tmp_path / f"land-{topic}.prom").read_text()


def test_one_that_fails_stops_all(topics: Topics, fresh_name: Callable[[], str], tmp_path: Path) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    jobs = [Landing(each, tmp_path, topics.address) for each in (name, "missing")]
    with pytest.raises(JobError, match="no topic missing at"):
        land_all(topics.spark, jobs, lambda line: None, threading.Event())
    with pytest.raises(JobError, match=r"no topic at .* is named like missing\*"):
        land_all(topics.spark, [Landing("missing*", tmp_path, topics.address)], lambda line: None, threading.Event())


def test_a_pattern_leaves_out_dead_letters() -> None:
    assert matching("a*", ["a", "ab", "ab.dlq", "ba"]) == ["a", "ab"]
    assert matching("ab.dlq", ["a"]) == ["ab.dlq"]
