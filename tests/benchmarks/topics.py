"""Topics that live as long as one run."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.systems import System
from tests.benchmarks.workload import Target

_TIMEOUT_S = 30
_numbers = itertools.count(1)


@contextmanager
def new_topic(system: System, workload: str, partitions: int) -> Iterator[Target]:
    """A new topic whose partitions all have a leader; deleted at the end."""
    admin = AdminClient({"bootstrap.servers": system.address})
    name = f"{workload}-{next(_numbers)}"
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(system.topic_config))])[name].result(_TIMEOUT_S)
    try:
        _await_leaders(admin, name, partitions)
        yield Target(system.address, name, partitions)
    finally:
        admin.delete_topics([name])[name].result(_TIMEOUT_S)


def _await_leaders(admin: AdminClient, name: str, partitions: int) -> None:
    """Kafka answers a creation before the broker leads the partitions."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        known = admin.list_topics(name, timeout=_TIMEOUT_S).topics[name]
        if known.error is None and sum(each.leader >= 0 for each in known.partitions.values()) == partitions:
            return
        time.sleep(0.02)
    raise TimeoutError(f"{name} has no leaders after {_TIMEOUT_S} s")
