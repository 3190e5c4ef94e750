"""The marks this broker is held to, as ratios of medians, and whether a benchmark met them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.figures import (
    CPU_PER_GB,
    CPU_PER_REQUEST,
    EARLIER,
    KAFKA,
    KAFKA_FLUSH,
    MEGABYTES,
    P50,
    REQUESTS,
    Results,
)

AS_FAST, AS_CHEAP = 0.93, 1.07
"""Rates at least, and costs at most, this part of what they were: what is between is noise."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Our figure over that of `against` is to be at least, or at most, `limit`."""

    workload: str
    figure: str
    against: str
    at_least: bool
    limit: float

    def asks(self) -> str:
        """The mark in a few words."""
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g} × {self.against}"

    def met_by(self, ratio: float) -> bool:
        """Whether the ratio is on the right side of the limit."""
        return ratio >= self.limit if self.at_least else ratio <= self.limit


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mark and what was reached; `ratio` is None where it was not measured."""

    mark: Mark
    ratio: float | None

    @property
    def word(self) -> str:
        """PASS, MISS, or a dash where nothing was measured."""
        if self.ratio is None:
            return "-"
        return "PASS" if self.mark.met_by(self.ratio) else "MISS"


def at_least(limit: float, workload: str, figure: str, against: str) -> Mark:
    """A mark from below."""
    return Mark(workload, figure, against, at_least=True, limit=limit)


def at_most(limit: float, workload: str, figure: str, against: str) -> Mark:
    """A mark from above."""
    return Mark(workload, figure, against, at_least=False, limit=limit)


MARKS = (
    at_least(1.2, "produce-librdkafka-1", MEGABYTES, KAFKA_FLUSH),
    at_least(0.8, "produce-librdkafka-1", MEGABYTES, KAFKA),
    at_most(1.0, "produce-librdkafka-1", CPU_PER_GB, KAFKA),
    at_least(1.2, "produce-librdkafka-6", MEGABYTES, KAFKA_FLUSH),
    at_least(0.8, "produce-librdkafka-6", MEGABYTES, KAFKA),
    at_most(1.0, "produce-librdkafka-6", CPU_PER_GB, KAFKA),
    at_least(1.0, "produce-java", MEGABYTES, KAFKA_FLUSH),
    at_least(0.9, "consume-librdkafka", MEGABYTES, KAFKA),
    at_least(0.9, "consume-raw", MEGABYTES, KAFKA),
    at_most(1.2, "small-1", P50, KAFKA_FLUSH),
    at_least(1.5, "small-8", REQUESTS, KAFKA_FLUSH),
    at_most(1.0, "end-to-end", P50, KAFKA_FLUSH),
)


def no_worse(results: Results) -> tuple[Mark, ...]:
    """That no rate, no cost and no median time of what was measured is worse than at the earlier commit."""
    marks = []
    for workload in results.workloads():
        figures = results.figures(workload)
        marks += [at_least(AS_FAST, workload, figure, EARLIER) for figure in (MEGABYTES, REQUESTS) if figure in figures]
        costs = (CPU_PER_GB, CPU_PER_REQUEST, P50)
        marks += [at_most(AS_CHEAP, workload, figure, EARLIER) for figure in costs if figure in figures]
    return tuple(marks)


def verdicts(results: Results, marks: Sequence[Mark] = MARKS) -> list[Verdict]:
    """Every mark with what was reached."""
    return [Verdict(mark, results.ratio(mark.workload, mark.figure, mark.against)) for mark in marks]
