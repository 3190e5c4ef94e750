"""The broker a suite talks to: ours, unless $PQBROKER_TESTS_BROKER says HOST:PORT, or `apache` for Apache Kafka."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pqbroker.testing import broker
from tests.support.kafka.broker import ApacheKafka

BROKER_VARIABLE = "PQBROKER_TESTS_BROKER"


@dataclass(frozen=True, slots=True)
class Served:
    """A broker that serves: its Kafka address, and that of its metrics, which only ours has."""

    kafka: str
    http: str | None = None


def is_ours() -> bool:
    """Whether the suites talk to our broker."""
    return not os.environ.get(BROKER_VARIABLE)


@contextmanager
def served(settings: Mapping[str, str] | None = None) -> Iterator[Served]:
    """The broker to test, stopped at the end unless somebody else started it. `settings` are for ours only."""
    choice = os.environ.get(BROKER_VARIABLE, "")
    if choice == "apache":
        with ApacheKafka(properties={"num.partitions": "1"}) as kafka:
            yield Served(kafka.kafka)
    elif choice:
        yield Served(choice)
    else:
        with broker(settings=settings) as running:
            yield Served(running.kafka, running.http)
