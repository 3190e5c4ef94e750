"""The metrics in Prometheus' text form, collected when asked. A registry of our own: no collectors nobody asked for."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from pqbroker.broker.metrics import FAMILIES, LATENCY_BOUNDS_S, Family, Histogram, Metrics, Sample, samples

CONTENT_TYPE: str = CONTENT_TYPE_LATEST
PREFIX = "pqbroker_"


def exposition(metrics: Metrics) -> bytes:
    """Every metric as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(metrics))
    text: bytes = generate_latest(registry)
    return text


class _Samples(Collector):
    """Turns the declared families and the samples taken now into the library's."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[Sample]] = {family.name: [] for family in FAMILIES}
        for sample in samples(self._metrics):
            by_name[sample.name].append(sample)
        for family in FAMILIES:
            yield _metric(family, by_name[family.name])


def _metric(family: Family, taken: list[Sample]) -> Metric:
    name = PREFIX + family.name
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
