"""The Grafana dashboard asks for metrics that there are, in queries that Prometheus understands."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import yaml

from pqbroker.broker.ground.metrics import FAMILIES
from tests.house.sources import ROOT
from tests.support.metrics_page import exposed_name

GRAFANA = ROOT / "docker" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "pqbroker.json").read_text(encoding="utf-8"))
SOURCES = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
COMMON_LABELS = {"instance", "job", "le"}


def labels_by_name() -> dict[str, set[str]]:
    """Labels of every series there is."""
    found: dict[str, set[str]] = {}
    for family in FAMILIES:
        suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        for suffix in suffixes:
            found[exposed_name(family) + suffix] = {*family.labels, *COMMON_LABELS}
    return found


LABELS = labels_by_name()


def all_targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target


TARGETS = list(all_targets())


def test_an_expression_is_a_query_for_metrics_and_labels_that_there_are() -> None:
    for title, target in TARGETS:
        expression = target["expr"].replace("$__rate_interval", "1m")
        promql_parser.parse(re.sub(r"\$\w+", "x", expression))
        names = re.findall(r"\b(pqbroker_\w+)", expression)
        assert names, title
        assert set(names) <= LABELS.keys(), title
        labels = set.intersection(*(LABELS[name] for name in names))
        kept = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.findall(r"\w+", group)}
        asked = {label for group in re.findall(r"{([^}]*)}", expression) for label in re.findall(r"(\w+)=", group)}
        assert asked | kept <= labels, title
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= (kept if "by (" in expression else labels), title
        assert set(re.findall(r"\$(\w+)", expression)) <= {*VARIABLES, "__rate_interval"}, title


def test_no_panel_asks_for_a_deprecated_metric() -> None:
    deprecated = {exposed_name(family) for family in FAMILIES if family.help.startswith("Deprecated")}
    assert deprecated
    assert not [title for title, target in TARGETS for name in deprecated if name in target["expr"]]


def test_counters_are_asked_for_as_rates_and_gauges_are_not() -> None:
    counters = {exposed_name(family) for family in FAMILIES if family.type == "counter"}
    for title, target in TARGETS:
        for name, ranged in re.findall(r"(pqbroker_\w+){[^}]*}(\[)?", target["expr"]):
            is_counter = name in counters or name.endswith(("_bucket", "_count", "_sum"))
            assert bool(ranged) is is_counter or name == "pqbroker_cell_openings_total", title


def test_variables_are_values_of_labels_that_there_are() -> None:
    for variable in VARIABLES.values():
        found = re.fullmatch(r"label_values\((pqbroker_\w+)(?:{.*})?, (\w+)\)", variable["definition"])
        assert found
        assert found[2] in LABELS[found[1]]


def test_every_panel_asks_the_source_that_is_provisioned() -> None:
    known = {source["uid"] for source in SOURCES["datasources"]}
    assert {panel["datasource"]["uid"] for panel in PANELS} == known
    assert {target["datasource"]["uid"] for _, target in TARGETS} == known


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_a_panel_says_what_it_shows() -> None:
    assert not [panel["title"] for panel in PANELS if not panel["description"].endswith(".")]


def test_what_an_alert_watches_has_thresholds() -> None:
    watched = ("pqbroker_disk_colour", "pqbroker_cell_openings_total", "pqbroker_loop_lag_seconds")
    for name in watched:
        panels = [panel for panel in PANELS if any(name in target["expr"] for target in panel["targets"])]
        steps = [panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", ()) for panel in panels]
        assert max(map(len, steps)) == 3, name
