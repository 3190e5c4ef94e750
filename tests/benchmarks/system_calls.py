"""System calls of one small Produce alone, acks=all, as strace counts them in the broker that serves it:

    python -m tests.benchmarks.system_calls [--against COMMIT]

Those of the process while nothing comes are few and in it; so is what strace's own delays change in which thread waits
for which.
"""

import argparse
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.benchmarks.systems import Started, earlier_broker, our_broker
from tests.benchmarks.topics import new_topic
from tests.benchmarks.wire import Connection, check_produced, produce_request, record_batch

REQUESTS = 1_000
_VALUE_BYTES = 100
_LINE = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)$", re.MULTILINE)
"""Of strace's table: share, seconds, microseconds a call, calls, errors, name."""


def measure(started: Started) -> Mapping[str, float] | None:
    """How often a broker of ours calls what for one request; None without strace."""
    system = started.systems[0]
    with new_topic(system, "calls", 1) as target:
        return of_one_request(system.pid, target.address, target.topic)


def of_one_request(pid: int, address: str, topic: str, count: int = REQUESTS) -> Mapping[str, float] | None:
    """How often the process `pid` calls what for one request of `count`; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    request = produce_request(topic, [(0, record_batch([bytes(_VALUE_BYTES)], 1_700_000_000_000))])
    with Connection(address) as connection:
        _exchange(connection, request, topic, count // 10)
        command = [strace, "-f", "-c", "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracing:
            assert tracing.stderr is not None
            tracing.stderr.readline()  # "Process ... attached"
            _exchange(connection, request, topic, count)
            tracing.send_signal(signal.SIGINT)
            table = tracing.stderr.read()
    return counted(table, count)


def counted(table: str, requests: int) -> dict[str, float]:
    """Calls by name for one of so many requests, from strace's table."""
    calls = {name: int(number) / requests for number, name in _LINE.findall(table) if name != "total"}
    return {name: calls[name] for name in sorted(calls, key=lambda name: -calls[name])}


def lines(calls: Mapping[str, float]) -> Iterator[str]:
    """Their sum, and those that are made in every second request at least."""
    yield f"{sum(calls.values()):>10.1f} in all"
    for name, number in calls.items():
        if number >= 0.5:
            yield f"{number:>10.1f} {name}"


def _exchange(connection: Connection, request: bytes, topic: str, count: int) -> None:
    for _ in range(count):
        connection.send(request)
        check_produced(connection.receive(), topic)


def main() -> None:
    """Print them, of this broker or of an earlier commit's."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.system_calls", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--against", metavar="COMMIT", help="those of an earlier commit instead")
    commit = parser.parse_args().against
    with tempfile.TemporaryDirectory(prefix="pqbroker-calls-") as scratch:
        directory = Path(scratch)
        with earlier_broker(directory, commit) if commit else our_broker(directory) as started:
            calls = measure(started)
    print("there is no strace here" if calls is None else "\n".join(lines(calls)))


if __name__ == "__main__":
    main()
