"""Produce and consume over TLS 1.3, of this broker and Apache Kafka, in interleaved rounds: python -m
tests.benchmarks.encrypted [ROUNDS].

Both brokers have the same certificate, a plain listener, by which topics are made and filled, and one of SSL, which is
measured. The plain listener is measured too. The mark of issue 30: at least 0.9 of Apache Kafka's.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pqbroker.fixture.certificates import make_certificates
from tests.benchmarks import consuming, producing
from tests.benchmarks.figures import KAFKA, MEGABYTES, OURS
from tests.benchmarks.meter import cpu_seconds
from tests.benchmarks.systems import System
from tests.benchmarks.topics import new_topic
from tests.benchmarks.workload import SHORT, Outcome, Target
from tests.support.kafka.broker import KAFKAS_JVM, ApacheKafka

PLAIN, TLS = "plain", "TLS"


@dataclass(frozen=True, slots=True)
class Pair:
    """A broker with two listeners. `client`: settings of librdkafka for the encrypted one."""

    system: System
    encrypted: str
    client: dict[str, str]

    def target(self, target: Target, way: str) -> Target:
        return target if way == PLAIN else replace(target, address=self.encrypted, client=self.client)


def main(rounds: int) -> None:
    """Print each figure's median, and ours by Kafka's."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="encrypted-")))
        made, settings = make_certificates(directory)
        client = {"security.protocol": "ssl", "ssl.ca.location": str(made.ca)}
        kafka = stack.enter_context(
            ApacheKafka(directory, heap="1g", jvm=KAFKAS_JVM, encrypted={**settings, "ssl.client.auth": "none"})
        )
        theirs = Pair(System(KAFKA, kafka.kafka, kafka.pid, {}, lambda: None), kafka.encrypted, client)
        ours = stack.enter_context(_our_broker(directory, settings, client))
        found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
        for number in range(rounds + 1):
            for pair in (ours, theirs) if number % 2 else (theirs, ours):
                for way in (TLS, PLAIN):
                    for name, outcome, cpu_s in _measured(pair, way):
                        if number:  # the first round warms both
                            figures = outcome.figures[MEGABYTES], cpu_s / (outcome.payload_bytes / 1e9)
                            found[name, way, pair.system.name].append(figures)
                            print(number, name, way, pair.system.name, *(f"{each:.1f}" for each in figures), flush=True)
    for name in ("produce", "consume"):
        for way in (TLS, PLAIN):
            medians = {
                who: [statistics.median(column) for column in zip(*found[name, way, who], strict=True)]
                for who in (OURS, KAFKA)
            }
            (ours_mb, ours_cpu), (their_mb, their_cpu) = medians[OURS], medians[KAFKA]
            print(
                f"{name} {way}: {ours_mb:.0f} MB/s, {ours_cpu:.2f} CPU s/GB; Kafka {their_mb:.0f} MB/s, {their_cpu:.2f}"
                f" CPU s/GB; {ours_mb / their_mb:.2f} of Kafka's"
            )


def _measured(pair: Pair, way: str) -> Iterator[tuple[str, Outcome, float]]:
    """Yield the name of each workload, its outcome and the broker's processor time."""
    with new_topic(pair.system, "encrypted", 1) as plain:
        target = pair.target(plain, way)
        os.sync()
        before = cpu_seconds(pair.system.pid)
        outcome = producing.produce_librdkafka(target, SHORT)
        yield "produce", outcome, cpu_seconds(pair.system.pid) - before
        before = cpu_seconds(pair.system.pid)
        outcome = consuming.read_librdkafka(target, outcome.appended)
        yield "consume", outcome, cpu_seconds(pair.system.pid) - before


@contextmanager
def _our_broker(directory: Path, settings: dict[str, str], client: dict[str, str]) -> Iterator[Pair]:
    command = [
        sys.executable, "-P", "-m", "pqbroker", "serve", "--kafka", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "--http", "127.0.0.1:0", "--data", str(directory / "data"), "--log-level", "warning",
    ]  # fmt: skip
    for name, value in {**settings, "ssl.client.auth": "none"}.items():
        command += ["--set", f"{name}={value}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            fields = dict(each.partition("=")[::2] for each in process.stdout.readline().split())
            plain, encrypted = (each.rpartition("://")[2] for each in fields["kafka"].split(","))
            yield Pair(System(OURS, plain, process.pid, {}, lambda: None), encrypted, client)
        finally:
            process.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
