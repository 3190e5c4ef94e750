"""Samples in Prometheus' text form. A registry of our own: no collectors nobody asked for."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from pqbroker.broker.ground.metrics import FAMILIES, Family, Sample, with_earlier_names
from pqbroker.storage.counters import LATENCY_BOUNDS_S, Histogram

FIRST_NODE = 1
"""Number of the node that answers for all of several."""
CONTENT_TYPE: str = CONTENT_TYPE_LATEST


def exposition(taken: Sequence[Sample], others: Mapping[int, Sequence[Sample]] | None = None) -> bytes:
    """Samples as text. Thousands take a while: run it in a thread.

    `others`: those of the other nodes of a broker with several, by their numbers; then each has a label `node`.
    """
    registry = CollectorRegistry(auto_describe=False)
    if others is None:
        registry.register(_Samples(taken, ()))
    else:
        all_nodes = {FIRST_NODE: taken, **others}
        named = [
            sample._replace(labels=(str(node), *sample.labels)) for node, known in all_nodes.items() for sample in known
        ]
        registry.register(_Samples(named, ("node",)))
    text: bytes = generate_latest(registry)
    return text


class _Samples(Collector):
    """Turns the declared families and the samples taken into the library's."""

    def __init__(self, taken: Sequence[Sample], first_labels: tuple[str, ...]) -> None:
        """`first_labels`: labels that every sample has before those of its family."""
        self._taken = taken
        self._first_labels = first_labels

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[Sample]] = {family.name: [] for family in FAMILIES}
        for sample in with_earlier_names(self._taken):
            by_name[sample.name].append(sample)
        for family in FAMILIES:
            yield _metric(family, by_name[family.name], self._first_labels)


def _metric(family: Family, taken: list[Sample], first_labels: tuple[str, ...]) -> Metric:
    name, labels = family.exposed_name, (*first_labels, *family.labels)
    if family.type == "histogram":
        histogram = HistogramMetricFamily(name, family.help, labels=labels)
        for sample in taken:
            assert sample.histogram is not None
            histogram.add_metric(sample.labels, _buckets(sample.histogram), sample.histogram.total)
        return histogram
    make = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    metric = make(name, family.help, labels=labels)
    for sample in taken:
        metric.add_metric(sample.labels, sample.value)
    return metric


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
    return list(zip(bounds, accumulate(histogram.buckets), strict=True))
