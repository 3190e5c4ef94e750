"""`kill -9` of the broker and of the job while a topic lands: afterwards the lake is the log, row for row."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pqbroker.pipeline.lakes.landing import Landing
from pqbroker.testing import Broker, broker
from tests.faults.load import read_all
from tests.spark.admin import committed
from tests.spark.lakes import Lander, batches
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.serving import is_ours
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not is_ours(), reason="only our broker is killed and started again")
TOPIC = "orders"
PARTITIONS = 2
ROUND = 100
GROUP = "lake"
JOB_STARTS_WITHIN_S = 180.0
STOPS_WITHIN_S = 50.0
"""Less than the minute that Kafka's admin client waits for a broker."""


class Site:
    """A broker to kill, its topic, and the lake."""

    def __init__(self, spark: SparkSession, node: Broker, directory: Path) -> None:
        self.node = node
        self.lander = Lander(spark, Landing(TOPIC, directory, node.kafka, GROUP))
        self._client = LibrdkafkaDriver(node.kafka)
        self._client.create_topic(TOPIC, partitions=PARTITIONS)
        self._written = 0

    def write(self) -> None:
        """One round of records, acknowledged."""
        for partition in range(PARTITIONS):
            numbers = range(self._written, self._written + ROUND)
            self._client.produce(TOPIC, [Message(b"%d" % number) for number in numbers], partition=partition)
            self._written += ROUND

    def write_until_landed(self, count: int) -> None:
        """Write until so many more batches are there."""
        wanted = len(batches(self.lander.landing.directory)) + count

        def landed() -> bool:
            self.write()
            return len(batches(self.lander.landing.directory)) >= wanted

        wait_until(landed, f"{count} more batches", JOB_STARTS_WITHIN_S)

    def kill_broker(self) -> None:
        """Kill the broker right after a write, and start it again."""
        self.write()
        self.node.kill()
        self.node.start()

    def check(self) -> None:
        """Land the rest; AssertionError unless the lake is the log."""
        self.lander.run()
        log = [
            (partition, *record)
            for partition in range(PARTITIONS)
            for record in read_all(self.node.kafka, TOPIC, partition)
        ]
        assert len(log) == self._written
        assert self.lander.rows() == log
        self.wait_until_shown()

    def wait_until_shown(self) -> None:
        """Until the group is at the end of what was written."""
        ends = {(TOPIC, partition): self._written // PARTITIONS for partition in range(PARTITIONS)}
        wait_until(lambda: committed(self.node.kafka, GROUP) == ends, "the mirrored offsets", JOB_STARTS_WITHIN_S)


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    with broker(tmp_path / "data") as node:
        (tmp_path / "lake" / "data").mkdir(parents=True)
        yield Site(spark, node, tmp_path / "lake")


@contextmanager
def job(site: Site, log_file: Path) -> Iterator[None]:
    """The job in a process of its own, killed at the end."""
    landing = site.lander.landing
    command = [sys.executable, "-P", "-m", "pqbroker.pipeline", "land", TOPIC, "--to", str(landing.directory)]
    command += ["--broker", landing.broker, "--interval", "0", "--quiet", "--group", landing.group]
    with log_file.open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
        assert process.poll() is None, f"the job ended by itself:\n{log_file.read_text()}"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def lines(log_file: Path) -> list[str]:
    """What the job has said, without what Java says of itself."""
    said = log_file.read_text(encoding="utf-8").splitlines()
    return [line for line in said if not line.startswith("WARNING: Using incubator modules")]


def test_every_row_lands_once_over_kills_of_the_broker(site: Site) -> None:
    def kills() -> None:
        for _ in range(2):
            site.write_until_landed(1)
            site.kill_broker()
        site.write_until_landed(1)

    site.lander.run_until(kills)
    site.check()


def test_a_job_is_stopped_while_its_broker_is_away(site: Site) -> None:
    stopped_at: list[float] = []

    def kill_between_batches() -> None:
        site.write()
        site.wait_until_shown()
        site.node.kill()
        stopped_at.append(time.monotonic())

    site.lander.run_until(kill_between_batches)
    assert time.monotonic() - stopped_at[0] < STOPS_WITHIN_S
    site.node.start()
    site.lander.wait_until_over()
    site.check()


def test_every_row_lands_once_over_kills_of_the_job(site: Site, tmp_path: Path) -> None:
    with job(site, tmp_path / "log"):
        site.write_until_landed(2)
        site.kill_broker()
        site.write_until_landed(1)
        site.write()
    for number, line in enumerate(lines(tmp_path / "log")):
        assert line.startswith(f"batch {number} "), line
    site.check()
    assert os.listdir(site.lander.landing.directory / "temporary") == []
