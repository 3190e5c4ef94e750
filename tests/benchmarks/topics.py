"""Topics that live as long as one run."""

import functools
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.benchmarks.systems import System
from tests.benchmarks.wire import WireError, end_offsets
from tests.benchmarks.workload import Target

_TIMEOUT_S = 30
_numbers = itertools.count(1)


@contextmanager
def new_topic(system: System, workload: str, partitions: int) -> Iterator[Target]:
    """A new topic whose partitions all have a leader; deleted at the end."""
    admin = _admin(system.address)
    name = f"{workload}-{next(_numbers)}"
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(system.topic_config))])[name].result(_TIMEOUT_S)
    try:
        target = Target(system.address, name, partitions)
        _await_leaders(target)
        yield target
    finally:
        admin.delete_topics([name])[name].result(_TIMEOUT_S)


@functools.cache
def _admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def _await_leaders(target: Target) -> None:
    """Kafka answers a creation before the broker leads the partitions; it does when all their offsets are told."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            end_offsets(target.address, target.topic, target.partitions)
            return
        except WireError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
