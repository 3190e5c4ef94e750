"""What a benchmark measures and the arithmetic over it: figures, runs, medians, percentiles, ratios. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

OURS = "pqbroker"
EARLIER = "pqbroker, earlier"
KAFKA_FLUSH = "Kafka, flush.messages=1"
KAFKA = "Kafka"
SYSTEMS = (OURS, EARLIER, KAFKA_FLUSH, KAFKA)

MEGABYTES = "MB/s"
CPU_PER_GB = "CPU s/GB"
REQUESTS = "requests/s"
CPU_PER_REQUEST = "CPU µs/request"
P50 = "p50 ms"
P99 = "p99 ms"
LOOP_LAG = "loop lag ms, worst so far"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a workload on a system; figures by name, the unit is in the name (MB is 10^6 bytes of values)."""

    workload: str
    system: str
    figures: Mapping[str, float]


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that `percent` of all are not above (nearest rank, as latency is usually told)."""
    assert values
    assert 0 < percent <= 100
    rank = -(-len(values) * percent // 100)
    return sorted(values)[int(rank) - 1]


class Results:
    """All runs of a benchmark, asked by workload, system and figure."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = list(runs)

    def workloads(self) -> list[str]:
        """Names in the order first run."""
        return list(dict.fromkeys(run.workload for run in self._runs))

    def systems(self) -> list[str]:
        """Those that ran, in the order of SYSTEMS."""
        ran = {run.system for run in self._runs}
        return [system for system in SYSTEMS if system in ran]

    def figures(self, workload: str) -> list[str]:
        """Names of the figures that any run of the workload has, in their order."""
        return list(dict.fromkeys(name for run in self._runs if run.workload == workload for name in run.figures))

    def values(self, workload: str, system: str, figure: str) -> list[float]:
        """The figure in every run, in the order run; empty where there is none."""
        return [
            run.figures[figure]
            for run in self._runs
            if run.workload == workload and run.system == system and figure in run.figures
        ]

    def median(self, workload: str, system: str, figure: str) -> float | None:
        """The median over the runs, None where there is none."""
        values = self.values(workload, system, figure)
        return median(values) if values else None

    def ratio(self, workload: str, figure: str, against: str) -> float | None:
        """Our median over that of `against`; None where one is missing or `against` is zero."""
        ours = self.median(workload, OURS, figure)
        theirs = self.median(workload, against, figure)
        return ours / theirs if ours is not None and theirs else None
