"""Producing to a broker whose store takes no writes: the command ends, with the broker's reason."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.testing import Broker, broker
from tests.support.waiting import wait_until

PRODUCE = """
import sys
from pqbroker.__main__ import main
from pqbroker.cli.records import client, measuring, producing
client.UNANSWERED_S = measuring.UNANSWERED_S = producing.UNANSWERED_S = 2.0
sys.exit(main())
"""


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Broker]:
    """A broker with a topic, whose store can be filled."""
    with broker(tmp_path / "data", {"pqbroker.test.door": "true"}) as running:
        ask(running, "/v1/topics", {"name": "t"})
        yield running


def ask(running: Broker, path: str, body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://{running.http}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)


def produce(running: Broker) -> "subprocess.Popen[bytes]":
    return start(running, "produce", "t")


def start(running: Broker, *words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", PRODUCE, *words, "--broker", running.kafka]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def test_a_producer_that_gets_no_id_says_so_and_ends(full: Broker) -> None:
    ask(full, "/v1/test/store", {"fault": "fill"})
    process = produce(full)
    _, errors = process.communicate(b"one\n", timeout=60)
    assert process.returncode == 1
    assert b"gave this producer no id within 2 s, so nothing was written" in errors
    assert b"pqbroker cluster health" in errors
    assert b"Unclosed" not in errors


def test_a_producer_whose_batches_are_refused_names_the_reason(full: Broker) -> None:
    process = produce(full)
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    wait_until(lambda: "one" in json.dumps(ask(full, "/v1/topics/t/records")), "the first record is stored")
    ask(full, "/v1/test/store", {"fault": "fill"})
    _, errors = process.communicate(b"two\nthree\n", timeout=60)
    assert process.returncode == 1
    assert b"records written: 1; none of the 2 behind them was acknowledged within 2 s" in errors
    assert b"takes no writes" in errors


def test_a_measurement_whose_batches_are_refused_names_the_reason(full: Broker) -> None:
    process = start(full, "bench", "--records", "10000000")
    wait_until(lambda: "pqbroker-bench-" in json.dumps(ask(full, "/v1/topics")), "the measurement has its topic")
    ask(full, "/v1/test/store", {"fault": "fill"})
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"no record was acknowledged within 2 s" in errors
