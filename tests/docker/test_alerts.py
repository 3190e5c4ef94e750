"""The alert rules ask for metrics that exist, and the page for operators explains each."""

import re
from typing import Any

import promql_parser
import pytest
import yaml

from tests.docker.test_dashboard import LABELS
from tests.house.sources import ROOT

GROUPS = yaml.safe_load((ROOT / "docker" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
RULES: list[dict[str, Any]] = GROUPS[0]["rules"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_a_query_for_metrics_that_exist_and_says_what_to_do(rule: dict[str, Any]) -> None:
    promql_parser.parse(rule["expr"])
    assert set(re.findall(r"\b(pqbroker_\w+)", rule["expr"])) <= LABELS.keys()
    shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    names = re.findall(r"\b(pqbroker_\w+)", rule["expr"])
    assert all(shown <= LABELS[name] for name in names)
    assert rule["annotations"].keys() == {"summary", "description"}
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_the_page_for_operators_explains_every_alert() -> None:
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (Pqbroker\w+) ", page, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_prometheus_reads_the_rules() -> None:
    config = yaml.safe_load((ROOT / "docker" / "prometheus.yaml").read_text(encoding="utf-8"))
    mounts = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))["services"]["prometheus"]
    assert config["rule_files"] == ["alerts.yaml"]
    assert "./alerts.yaml:/etc/prometheus/alerts.yaml:ro" in mounts["volumes"]
