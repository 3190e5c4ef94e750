"""Writes docs/metrics.md from the declarations in broker/ground/metrics.py: `python -m tests.support.metrics_page`."""

from collections.abc import Iterator
from pathlib import Path

from pqbroker.broker.ground.metrics import FAMILIES, Family

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"

_HEAD = """\
# Metrics

This page is written from the declarations in `broker/ground/metrics.py` (`python -m tests.support.metrics_page`); a
test compares them. `GET /metrics` on the HTTP address answers in Prometheus' text form; [docker/](../docker) has a
Prometheus and a Grafana dashboard for it.

Counters begin at 0 when their part starts: the node, or for what the cell, its pools and its partitions count, the
opening of the cell. A histogram has the series `…_bucket`, `…_sum` and `…_count`. A broker of several nodes
answers for all of them, and each sample has a label `node`, the number of its node, from 1.

Series with the labels `topic` and `partition` are bounded: up to `pqbroker.metrics.partitions.max` partitions each has
its own. Above, they are sums over the partitions of a topic, with an empty `partition`; and where there are more topics
than that, sums over the node, with both labels empty. `sum by (topic) (…)` is right in all three cases.

Lags of consumer groups are bounded alike: up to `pqbroker.metrics.offsets.max` committed offsets each has its own.
Above, `pqbroker_group_lag_summed` is 1 and they are sums over the partitions of a group, with empty `topic` and
`partition`; and where there are more groups than that, there is one sum, with an empty `group`. The members of more
groups than that are one sum too.

| name | type | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    """The whole page."""
    return _HEAD + "".join(_rows())


def exposed_name(family: Family) -> str:
    """The name as a query has it, a histogram's without suffix."""
    return family.exposed_name + ("_total" if family.type == "counter" else "")


def _rows() -> Iterator[str]:
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{exposed_name(family)}` | {family.type} | {labels} | {family.help} |\n"


if __name__ == "__main__":
    PAGE.write_text(metrics_page(), encoding="utf-8")
