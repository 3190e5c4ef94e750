"""`replay`: what was landed or exported is in a topic again, each record once."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pqbroker.pipeline.lakes.landing import Landing
from pqbroker.pipeline.relays.journal import Begun, Journal
from pqbroker.pipeline.relays.replay import replay
from pqbroker.pipeline.relays.replaying import Replaying
from tests.spark.lakes import Lander
from tests.spark.topics import Topics
from tests.support.drivers.driver import RECENT_MS, Message


@pytest.fixture
def target(topics: Topics, fresh_name: Callable[[], str]) -> str:
    """A topic of two partitions."""
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    return name


def run(topics: Topics, replaying: Replaying) -> list[str]:
    """Replay; the job's lines."""
    lines: list[str] = []
    replay(topics.spark, replaying, lines.append, threading.Event())
    return lines


def records(topics: Topics, topic: str) -> list[tuple[Any, ...]]:
    """(partition, key, value, ms, own headers) of a topic, in order."""
    read = topics.read(topic, includeHeaders="true", startingOffsets="earliest").orderBy("partition", "offset")
    return [
        (
            row["partition"], row["key"] and bytes(row["key"]), row["value"] and bytes(row["value"]), row["ms"],
            [(each["key"], bytes(each["value"])) for each in row["headers"] if not each["key"].startswith("source.")],
        )
        for row in read.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    ]  # fmt: skip


def test_a_lake_becomes_its_topic_again(
    topics: Topics, target: str, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    source = fresh_name()
    topics.client.create_topic(source, partitions=2)
    for partition in range(2):
        messages = [
            Message(b"%d" % number, b"key", (("h", b"\xff"),), RECENT_MS + number) for number in range(partition, 20, 2)
        ]
        topics.client.produce(source, messages, partition=partition)
    Lander(topics.spark, Landing(source, tmp_path / "lake", topics.address)).run(batch_rows_max=10)
    job = Replaying(tmp_path / "lake", target, tmp_path / "state", topics.address)
    lines = run(topics, job)
    assert [line.split()[:2] for line in lines] == [["batch", str(number)] for number in range(len(lines))]
    assert lines[-1].endswith("  0 files left")
    assert records(topics, target) == records(topics, source)
    assert run(topics, job) == []
    journal = Journal(job.state)
    journal.note(Begun(len(lines) - 1, {"0": 0, "1": 0}))  # as after a kill within the last file
    run(topics, job)
    assert records(topics, target) == records(topics, source)


def test_lines_of_a_time_are_written_at_a_rate(topics: Topics, target: str, tmp_path: Path) -> None:
    lines = [
        json.dumps({"partition": number % 2, "key": None, "value": str(number), "timestamp": RECENT_MS + number})
        for number in range(100)
    ]
    (tmp_path / "records.jsonl").write_text("\n".join(["no record", *lines]) + "\n")
    job = Replaying(tmp_path / "records.jsonl", target, tmp_path / "state", topics.address)
    run(topics, replace(job, since_ms=RECENT_MS + 10, until_ms=RECENT_MS + 90, records_per_s=1000.0))
    found = [(partition, int(value), ms - RECENT_MS) for partition, _, value, ms, _ in records(topics, target)]
    assert found == [(partition, number, number) for partition in range(2) for number in range(10 + partition, 90, 2)]
