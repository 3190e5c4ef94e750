"""A round: jobs run side by side, their broker is killed and started again, they are killed, and run to their ends."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from pqbroker.testing import Broker
from tests.spark.kills.cases import CASES, Case, Site
from tests.support.waiting import wait_until

_ROOT = Path(__file__).parents[3]
_WORKS_WITHIN_S = 300.0


def play(spark: SparkSession, node: Broker, directory: Path, jobs: Sequence[str], seed: int) -> None:
    """AssertionError unless each row of each job is there once afterwards."""
    source = random.Random(seed)
    one = _Round(Site(node.kafka, directory), [CASES[name]() for name in jobs])
    with _killed(one.site, jobs, whole_group=source.random() < 0.5) as check_running:
        one.wait_for_work(source, check_running)
        node.kill()
        node.start()
        one.wait_for_work(source, check_running)
        if source.random() < 0.5:  # both are away at once
            node.kill()
    if not node.running:
        node.start()
    one.end(spark)


class _Round:
    """The jobs of a round, and what they read."""

    def __init__(self, site: Site, cases: Sequence[Case]) -> None:
        self.site = site
        self._cases = cases
        self._fed = 0
        site.directory.mkdir(parents=True, exist_ok=True)
        for case in cases:
            case.prepare(site)

    def wait_for_work(self, source: random.Random, check_running: Callable[[], None]) -> None:
        """Write on and on to what the jobs read, until each is some work further."""
        wanted = [case.done(self.site) + case.step(source) for case in self._cases]

        def is_done() -> bool:
            check_running()
            self._feed()
            return all(case.done(self.site) >= count for case, count in zip(self._cases, wanted, strict=True))

        wait_until(is_done, f"each job some work further, {wanted}", _WORKS_WITHIN_S)

    def end(self, spark: SparkSession) -> None:
        """Run all to their ends, side by side as before. AssertionError unless each row is there once."""
        self._feed()
        with ThreadPoolExecutor(len(self._cases)) as pool:
            ended = [pool.submit(case.run, spark, self.site, Event(), once=True) for case in self._cases]
        for each in ended:
            each.result()
        for case in self._cases:
            case.check(spark, self.site)

    def _feed(self) -> None:
        for case in self._cases:
            case.feed(self.site, self._fed)
        self._fed += 1


@contextmanager
def _killed(site: Site, jobs: Sequence[str], *, whole_group: bool) -> Iterator[Callable[[], None]]:
    """The jobs in a process of their own, killed at the end, alone or with its JVM. Yields what checks that it runs."""
    log_file = site.directory / "log"
    command = [sys.executable, "-m", "tests.spark.kills.victim", site.address, str(site.directory), *jobs]
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=_ROOT, start_new_session=True
        )

    def check_running() -> None:
        assert process.poll() is None, f"the jobs ended by themselves:\n{log_file.read_text()}"

    try:
        yield check_running
        check_running()
    finally:
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
