"""Samples of metrics on their way between nodes, as JSON; to write and read thousands of them is work for a thread."""

import json
from collections.abc import Sequence
from typing import Any

from pqbroker.broker.ground.metrics import FAMILIES, Sample
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.storage.counters import Histogram

_FAMILIES = {family.name: family for family in FAMILIES}


def encode_samples(taken: Sequence[Sample]) -> bytes:
    """Return samples as another node reads them."""
    return json.dumps([[name, value, labels, _counts(histogram)] for name, value, labels, histogram in taken]).encode()


def decode_samples(told: bytes | memoryview) -> list[Sample]:
    """Read what `encode_samples` returned. LinkBroken for samples that no node of this version takes."""
    try:
        return [_sample(*one) for one in json.loads(bytes(told))]
    except (LookupError, TypeError, ValueError, RecursionError) as bad:
        raise LinkBroken(f"a node sent no samples: {bad!r}") from None


def _counts(histogram: Histogram | None) -> Any:
    return None if histogram is None else [histogram.buckets, histogram.total]


def _sample(name: str, value: Any, labels: Any, counts: Any) -> Sample:
    family = _FAMILIES[name]
    if len(labels) != len(family.labels) or (counts is not None) != (family.type == "histogram"):
        raise ValueError(name)
    histogram = None
    if counts is not None:
        buckets, total = counts
        histogram = Histogram.of([int(count) for count in buckets], float(total))
    return Sample(name, float(value), tuple(map(str, labels)), histogram)
