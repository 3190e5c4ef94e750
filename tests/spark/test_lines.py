"""What a person sees of a job: a line within two seconds of the command, and never five seconds without one."""

import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.crowding import Crowding
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.serving import Served

FIRST_WITHIN_S = 2.0
NEXT_WITHIN_S = 5.0


@pytest.mark.alone
def test_no_wait_of_a_job_is_silent(broker: Served, fresh_name: Callable[[], str], tmp_path: Path) -> None:
    """The suite's Spark is not started for it: the job has its own."""
    name, client = fresh_name(), LibrdkafkaDriver(broker.kafka)
    client.create_topic(name)
    client.produce(name, [Message(b'{"id": 1}', b"key")])
    command = [sys.executable, "-P", "-m", "pqbroker.pipeline", "snapshot", name, "--to", str(tmp_path), "--once"]
    command += ["--broker", broker.kafka, "--format", "json", "--schema", "id BIGINT"]
    heard = [time.monotonic()]
    lines = []
    with (
        Crowding() as crowding,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job,
    ):
        assert job.stderr is not None
        for line in job.stderr:
            heard.append(time.monotonic())
            lines.append(line)
    heard.append(time.monotonic())
    gaps = [after - before for before, after in pairwise(heard)]
    assert job.returncode == 0, lines
    assert any(line.startswith("batch 0  1 rows") for line in lines), lines
    assert gaps[0] < FIRST_WITHIN_S * crowding.times
    assert max(gaps) < NEXT_WITHIN_S * crowding.times, list(zip(gaps[1:], lines, strict=True))
