"""The brokers compared: this one and Apache Kafka, each a process with its data on the same file system."""

import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pqbroker.testing import broker
from tests.benchmarks.earlier import earlier_tree, importing_from
from tests.benchmarks.figures import EARLIER, KAFKA, KAFKA_FLUSH, OURS
from tests.support.kafka.broker import KAFKAS_JVM, ApacheKafka

_LAG_NAME = re.compile(r"^(\w*loop_lag\w*)(?:\{[^}]*\})? (\S+)", re.MULTILINE)
_NOT_A_LAG = re.compile(r"_(bucket|count|sum|created)$")
_HTTP_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class System:
    """A running broker, and what topics on it are created with. Two systems may share one process."""

    name: str
    address: str
    pid: int
    topic_config: Mapping[str, str]
    loop_lag_ms: Callable[[], float | None]


@dataclass(frozen=True, slots=True)
class Started:
    """A broker process: the systems it stands for, and its configuration as lines of text."""

    systems: tuple[System, ...]
    configuration: tuple[str, ...]


@contextmanager
def our_broker(directory: Path, name: str = OURS) -> Iterator[Started]:
    """This broker with its default settings: every acknowledgement after fsync."""
    with broker(directory / name) as running:
        configuration = ("pqbroker serve, default settings (pqbroker.durability=fsync)",)
        yield Started(
            (System(name, running.kafka, running.pid, {}, lambda: scraped_lag_ms(running.http)),), configuration
        )


@contextmanager
def earlier_broker(directory: Path, commit: str) -> Iterator[Started]:
    """The broker of an earlier commit, in the same Python. Raises UnknownCommit."""
    with earlier_tree(commit) as tree, ExitStack() as stack:
        with importing_from(tree):
            started = stack.enter_context(our_broker(directory, EARLIER))
        yield replace(started, configuration=(f"commit {commit}", *started.configuration))


@contextmanager
def apache_kafka(directory: Path) -> Iterator[Started]:
    """Apache Kafka, two systems in one process: topics that flush every message, topics that leave it to the OS."""
    with ApacheKafka(directory, heap="1g", jvm=KAFKAS_JVM) as kafka:
        properties = [f"{name}={value}" for name, value in sorted(kafka.properties.items())]
        yield Started(
            (
                System(KAFKA_FLUSH, kafka.kafka, kafka.pid, {"flush.messages": "1"}, _no_lag),
                System(KAFKA, kafka.kafka, kafka.pid, {}, _no_lag),
            ),
            (" ".join(kafka.command), *properties),
        )


def worst_lag_ms(metrics: str) -> float | None:
    """The greatest sample of any metric with `loop_lag` in its name, in ms; seconds unless the name says ms."""
    lags = [
        float(value) * (1 if re.search(r"_(ms|milliseconds)(_|$)", name) else 1e3)
        for name, value in _LAG_NAME.findall(metrics)
        if not _NOT_A_LAG.search(name)
    ]
    return max(lags, default=None)


def scraped_lag_ms(http: str) -> float | None:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=_HTTP_TIMEOUT_S) as response:
        return worst_lag_ms(response.read().decode())


def _no_lag() -> None:
    return None
