"""Doors that say how a node is, each asked once, in one form: documents over HTTP, commands, the console's stream, the
log, metrics, and rules of alerts."""

import json
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import promql_parser
import yaml

ALERTS: Final = Path(__file__).parents[2] / "docker" / "alerts.yaml"
CONDITIONS: Final = "pqbroker_conditions"
_TIMEOUT_S: Final = 60.0
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_SAMPLE: Final = re.compile(r'^pqbroker_conditions\{kind="([a-z-]+)"\} (\d+)', re.MULTILINE)
State = tuple[str, tuple[tuple[str, ...], ...]]
"""The status, and of each condition severity, kind, place, what it affects, cause and cure; numbers of causes are #."""


class Doors:
    """The doors of a node at two addresses. `run`: runs a command; its exit status and output."""

    def __init__(self, kafka: str, http: str, run: Callable[..., tuple[int, str]]) -> None:
        self._kafka = kafka
        self._http = http
        self._run = run

    def states(self) -> dict[str, State]:
        """Ask each door that gives the state in JSON once; the state by door."""
        paths = {path: state(self._asked(path)[1]) for path in ("/health", "/ready", "/v1/node", "/v1/events")}
        _, health = self._run("cluster", "health", "--json", "--broker", self._kafka)
        _, top = self._run("top", "--count", "1", "--interval", "0.1", "--json", "--broker", self._kafka)
        return {**paths, "cluster health": state(json.loads(health)), "top": state(json.loads(top))}

    def statuses(self) -> tuple[int, int]:
        """HTTP statuses of /health and /ready."""
        return self._asked("/health")[0], self._asked("/ready")[0]

    def texts(self) -> dict[str, str]:
        """Ask each command that gives the state as text once; the text by command."""
        _, health = self._run("cluster", "health", "--broker", self._kafka)
        _, top = self._run("top", "--count", "1", "--interval", "0.1", "--broker", self._kafka)
        return {"cluster health": health, "top": top}

    def counts(self) -> Counter[str]:
        """Conditions by kind, as the metric has them; none without a condition."""
        with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=_TIMEOUT_S) as found:
            text = found.read().decode()
        return +Counter({kind: int(count) for kind, count in _SAMPLE.findall(text)})

    def _asked(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and document of an answer; of a stream the first line."""
        try:
            with urllib.request.urlopen(f"http://{self._http}{path}", timeout=_TIMEOUT_S) as found:
                return found.status, json.loads(found.readline() if path == "/v1/events" else found.read())
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)


def state(document: Mapping[str, Any]) -> State:
    conditions = [
        (one["severity"], one["kind"], one["place"], one["affects"], without_numbers(one["cause"]), one["cure"])
        for one in document["conditions"]
    ]
    return document["status"], tuple(conditions)


def without_numbers(text: str) -> str:
    return _NUMBER.sub("#", text)


def firing(kinds: Iterable[str]) -> dict[str, list[str]]:
    """Alerts by kind of condition whose rule is true when it has held long enough; they ask for the metric alone."""
    found: dict[str, list[str]] = {kind: [] for kind in kinds}
    for rule in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]:
        if CONDITIONS not in rule["expr"]:
            continue
        parsed: Any = promql_parser.parse(rule["expr"])
        selector = parsed.lhs if isinstance(parsed.lhs, promql_parser.VectorSelector) else parsed.lhs.expr
        (matcher,) = selector.matchers.matchers
        assert (matcher.name, str(parsed.op), parsed.rhs.val) == ("kind", ">", 0.0), rule["expr"]
        for kind in found:
            if re.fullmatch(matcher.value, kind):
                found[kind].append(rule["alert"])
    return found

