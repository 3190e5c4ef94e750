"""Samples in Prometheus' text form. A registry of our own: no collectors nobody asked for."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from pqbroker.broker.ground.metrics import FAMILIES, Family, Sample, with_earlier_names
from pqbroker.storage.counters import LATENCY_BOUNDS_S, Histogram

CONTENT_TYPE: str = CONTENT_TYPE_LATEST


def exposition(taken: Sequence[Sample]) -> bytes:
    """Samples as text. Thousands take a while: run it in a thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(taken))
    text: bytes = generate_latest(registry)
    return text


class _Samples(Collector):
    """Turns the declared families and the samples taken into the library's."""

    def __init__(self, taken: Sequence[Sample]) -> None:
        self._taken = taken

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[Sample]] = {family.name: [] for family in FAMILIES}
        for sample in with_earlier_names(self._taken):
            by_name[sample.name].append(sample)
        for family in FAMILIES:
            yield _metric(family, by_name[family.name])


def _metric(family: Family, taken: list[Sample]) -> Metric:
    name = family.exposed_name
    if family.type == "histogram":
        histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
        for sample in taken:
            assert sample.histogram is not None
            histogram.add_metric(sample.labels, _buckets(sample.histogram), sample.histogram.total)
        return histogram
    make = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    metric = make(name, family.help, labels=family.labels)
    for sample in taken:
        metric.add_metric(sample.labels, sample.value)
    return metric


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
    return list(zip(bounds, accumulate(histogram.buckets), strict=True))
