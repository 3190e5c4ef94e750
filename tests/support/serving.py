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
def served(advertised: str | None = None, settings: Mapping[str, str] | None = None) -> Iterator[Served]:
    """The broker to test, stopped at the end if it was started here; it tells clients to come to `advertised`.

    `settings` have a name and a meaning in both brokers. Groups start without Kafka's delay.
    """
    own = {"group.initial.rebalance.delay.ms": "0", **(settings or {})}
    choice = os.environ.get(BROKER_VARIABLE, "")
    if choice == "apache":
        properties = own | ({"advertised.listeners": f"PLAINTEXT://{advertised}"} if advertised else {})
        with ApacheKafka(properties=properties) as kafka:
            yield Served(kafka.properties["listeners"].split(",")[0].removeprefix("PLAINTEXT://"))
    elif choice:
        yield Served(choice)
    else:
        with broker(settings=own | ({"advertised.listeners": advertised} if advertised else {})) as running:
            yield Served(running.kafka, running.http)
