"""The words workloads are declared in: what to run, how much of it, against what, and what came of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.benchmarks.figures import SYSTEMS


@dataclass(frozen=True, slots=True)
class Scale:
    """How much each workload does in one run."""

    warm_bytes: int
    produce_bytes: int
    java_records: int
    consume_bytes: int
    small_requests: int
    end_to_end_records: int


FULL = Scale(
    warm_bytes=1_000_000_000,
    produce_bytes=600_000_000,
    java_records=300_000,
    consume_bytes=1_000_000_000,
    small_requests=20_000,
    end_to_end_records=5_000,
)
SHORT = Scale(
    warm_bytes=300_000_000,
    produce_bytes=150_000_000,
    java_records=60_000,
    consume_bytes=150_000_000,
    small_requests=4_000,
    end_to_end_records=2_000,
)
QUICK = Scale(
    warm_bytes=50_000_000,
    produce_bytes=30_000_000,
    java_records=4_000,
    consume_bytes=30_000_000,
    small_requests=200,
    end_to_end_records=200,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A new topic on a broker."""

    address: str
    topic: str
    partitions: int
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka's clients for the address, such as those of TLS."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run measured by itself; `payload_bytes` and `requests` are what processor time is divided by.

    `appended` is how many records the topic must hold afterwards beyond those before.
    """

    figures: Mapping[str, float]
    payload_bytes: int = 0
    requests: int = 0
    appended: int = 0


def nothing(target: Target, scale: Scale) -> int:
    """The preparation of a workload that needs none."""
    return 0


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of load. `prepare` fills the topic, unmeasured, and returns the count of records it appended."""

    name: str
    says: str
    run: Callable[[Target, Scale], Outcome]
    partitions: int = 1
    prepare: Callable[[Target, Scale], int] = nothing
    systems: tuple[str, ...] = SYSTEMS
