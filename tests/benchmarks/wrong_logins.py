"""Measure what a flood of wrong logins costs others: python -m tests.benchmarks.wrong_logins [--rate RATE]

A producer that has logged in sends one small record at a time: alone; beside a flood at another broker, which says what
the flood takes of the machine's processors; and beside the same flood at its own broker. Beside that one a login that
is right is timed too, and the processor time of the broker's loop.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.testing import Broker, broker
from tests.attacks.test_wrong_logins import USERS, log_in
from tests.attacks.wrong_logins import BASIC, BASIC_KEPT
from tests.benchmarks.figures import percentile
from tests.benchmarks.wire import produce_request, record_batch
from tests.support.attacked import Caller

KINDS: Final = ("SCRAM-SHA-256", "PLAIN", BASIC, BASIC_KEPT)
TOPIC: Final = "beside-a-flood"
PAUSE_S: Final = 0.001
"""Time between two records: without it the producer alone would keep the loop busy."""
RIGHT_LOGINS: Final = 5
WARM_UP_S: Final = 2.0


class Beside(NamedTuple):
    """Latencies of records in ms; the slowest right login in seconds; cores that the loop's thread took."""

    took_ms: Sequence[float]
    login_s: float = 0.0
    loop_cores: float = 0.0

    def __str__(self) -> str:
        text = f"p50 {percentile(self.took_ms, 50):.2f} ms, p99 {percentile(self.took_ms, 99):.1f} ms"
        if not self.login_s:
            return text
        return f"{text}; a right login {self.login_s:.2f} s at most; loop {self.loop_cores:.2f} cores"


def produce(caller: Caller, seconds: float) -> list[float]:
    """Send records, one at a time, and return how long each took, in ms."""
    frame = produce_request(TOPIC, [(0, record_batch([bytes(100)], 1_700_000_000_000))])
    took_ms, end = list[float](), time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        caller.socket.sendall(frame)
        caller.receive()
        took_ms.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_S)
    return took_ms


@contextmanager
def flood(kind: str, target: Broker, rate: float, seconds: float) -> Iterator[None]:
    """Run a flood at a broker in another process."""
    address = target.http if kind.startswith(BASIC) else target.kafka
    command = [sys.executable, "-m", "tests.attacks.wrong_logins", kind, address, str(rate), str(seconds + WARM_UP_S)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as flooding:
        time.sleep(WARM_UP_S)
        yield
        flooding.terminate()


def loop_seconds(running: Broker) -> float:
    """Return the processor time of the broker's first thread, its loop."""
    return int(Path(f"/proc/{running.pid}/task/{running.pid}/schedstat").read_text().split()[0]) / 1e9


def slowest_login_s(running: Broker, mechanism: str) -> float:
    """Return how long the slowest of several right logins took."""
    slowest = 0.0
    for _ in range(RIGHT_LOGINS):
        began = time.perf_counter()
        log_in(running.kafka, mechanism).close()
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def measure(kind: str, rate: float, seconds: float) -> dict[str, Beside]:
    """Return what a producer sees alone, and beside a flood at another broker and at its own."""
    with broker(users=USERS) as own, broker(users=USERS) as other, log_in(own.kafka, "SCRAM-SHA-256") as caller:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        caller.ask(CreateTopicsRequest(topics=[topic]))
        produce(caller, 1.0)
        found = {"alone": Beside(produce(caller, seconds))}
        with flood(kind, other, rate, seconds):
            found["at another broker"] = Beside(produce(caller, seconds))
        with flood(kind, own, rate, 2 * seconds):
            before, began = loop_seconds(own), time.perf_counter()
            took_ms = produce(caller, seconds)
            cores = (loop_seconds(own) - before) / (time.perf_counter() - began)
            login_s = slowest_login_s(own, "PLAIN" if kind.startswith(BASIC) else kind)
            found["at its own"] = Beside(took_ms, login_s, cores)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.wrong_logins", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all unless given")
    parser.add_argument("--rate", type=float, default=2000, help="wrong logins a second")
    parser.add_argument("--seconds", type=float, default=10, help="seconds of each part")
    options = parser.parse_args()
    for kind in options.kinds or KINDS:
        for where, found in measure(kind, options.rate, options.seconds).items():
            print(f"{kind}, {where}: {found}", flush=True)


if __name__ == "__main__":
    main()
