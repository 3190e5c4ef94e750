"""Writes docs/metrics.md from the declarations in broker/ground/metrics.py: `python -m tests.support.metrics_page`."""

from collections.abc import Iterator
from pathlib import Path

from pqbroker.broker.ground.metrics import FAMILIES, Family

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"

_HEAD = """\
# Metrics

`GET /metrics` at the HTTP address returns all metrics in Prometheus' text format; [docker/](../docker) has a Prometheus
and a Grafana dashboard. The page is written from the declarations in `broker/ground/metrics.py`
(`python -m tests.support.metrics_page`).

Counters of cells, pools and partitions begin at 0 when the cell is opened, others when the node starts. A histogram has
the series `…_bucket`, `…_sum` and `…_count`. With [several nodes](nodes.md) the answer has the metrics of all, and each
sample has a label `node`, the number of its node, from 1.

The number of series is limited. Up to `pqbroker.metrics.partitions.max` partitions have series of their own. If there
are more, each topic has one sum, with an empty label `partition`; if there are more topics than that, the node has one
sum, with an empty `topic` too. `sum by (topic) (…)` is right in all three cases.

In the same way up to `pqbroker.metrics.offsets.max` committed offsets of consumer groups have a lag of their own. If
there are more, `pqbroker_group_lag_summed` is 1 and each group has one sum, with empty `topic` and `partition`; if
there are more groups than that, there is one sum, with an empty `group`, of lags and of members.

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
