"""What HTTP shows of a node: itself, its settings, its pools and their segments."""

import json
import urllib.request
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pqbroker import __version__
from pqbroker.testing import broker
from tests.broker.conftest import until
from tests.broker.web.conftest import Web

Serve = Callable[..., Awaitable[Web]]


async def get(web: Web, path: str) -> Any:
    status, document = await web.ask("GET", path)
    assert status == 200, document
    return document


async def test_a_node_shows_itself(web: Web) -> None:
    await web.node.create_topic("t")
    web.node.clock.now_ms += 5000
    found = await get(web, "/v1/node")
    assert (found["cell"], found["node"], found["version"], found["topics"]) == ("0", 1, __version__, 1)
    assert (found["uptime_ms"], found["is_open"], found["connections"]) == (5000, True, 1)
    (listener,) = found["listeners"]
    assert listener == {"name": "PLAINTEXT", "address": str(web.node.server.kafka_address)}


async def named(web: Web, query: str = "") -> dict[str, Any]:
    """Every setting by name, page by page."""
    found: dict[str, Any] = {}
    following: str | None = ""
    while following is not None:
        page = await get(web, f"/v1/settings?limit=100&after={following}{query}")
        found |= {one["name"]: one for one in page["settings"]}
        following = page["next"]
    return found


async def test_settings_say_what_is_in_force_and_whence(serve: Serve) -> None:
    web = await serve(http_looks_max=3)
    every = await named(web)
    assert list(every) == sorted(every)
    assert every["pqbroker.http.looks.max"]["value"] == "3"
    assert every["pqbroker.http.looks.max"]["source"] == "STATIC_BROKER"
    assert every["log.retention.ms"]["dynamic"]
    assert not every["pqbroker.http.looks.max"]["dynamic"]
    changed = await named(web, "&changed=true")
    assert "pqbroker.http.looks.max" in changed
    assert "pqbroker.http.items.max" not in changed


async def test_a_setting_is_changed_and_taken_back(web: Web) -> None:
    status, document = await web.ask("PATCH", "/v1/settings", {"settings": {"log.retention.ms": 5000}})
    assert (status, document["settings"][0]["value"]) == (200, "5000")
    assert (await named(web))["log.retention.ms"]["source"] == "DYNAMIC_BROKER"
    await web.ask("PATCH", "/v1/settings", {"settings": {"max.connections": 77}, "every_node": True})
    assert (await named(web))["max.connections"]["source"] == "DYNAMIC_DEFAULT_BROKER"
    _, document = await web.ask("PATCH", "/v1/settings", {"settings": {"log.retention.ms": None}})
    assert document["settings"][0]["source"] != "DYNAMIC_BROKER"


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"settings": {"log.retention.mss": 1}}, 400, "log.retention.mss"),
        ({"settings": {"node.id": 3}}, 400, "node.id"),
        ({"settings": {"max.connections": "many"}}, 400, "max.connections"),
        ({"setting": {}}, 400, "settings"),
    ],
)
async def test_a_wrong_setting_is_refused_by_its_name(web: Web, body: Any, status: int, named: str) -> None:
    refused = await web.refusal("PATCH", "/v1/settings", body)
    assert refused[0] == status
    assert named in refused[2]


async def test_pools_are_shown(web: Web) -> None:
    found = await get(web, "/v1/pools")
    (pool,) = found["pools"]
    assert (found["cell"], pool["name"], pool["status"], pool["segments"]) == ("0", "main", "green", 0)
    assert pool["free_bytes"] + pool["live_bytes"] <= pool["total_bytes"]
    assert (await get(web, "/v1/segments?pool=main"))["segments"] == []
    assert (await web.refusal("GET", "/v1/segments?pool=fast"))[:2] == (404, "UNKNOWN_POOL")


def ask_over_http(address: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://{address}{path}", data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)


def test_segments_on_a_disk_come_in_pages(tmp_path: Path) -> None:
    with broker(tmp_path / "data", {"pqbroker.segment.bytes": str(1 << 20)}) as running:
        ask = partial(ask_over_http, running.http)
        ask("POST", "/v1/topics", {"name": "t"})
        for _ in range(4):
            ask("POST", "/v1/topics/t/records", {"records": [{"value": "x" * 900_000}]})
        whole = ask("GET", "/v1/segments")
        assert len(whole["segments"]) >= 3
        assert sum(one["active"] for one in whole["segments"]) <= 1
        (pool,) = ask("GET", "/v1/pools")["pools"]
        assert pool["segments"] == len(whole["segments"])
        assert pool["live_bytes"] == sum(one["live_bytes"] for one in whole["segments"])
        first = ask("GET", "/v1/segments?limit=1")
        assert first["segments"] == whole["segments"][:1]
        rest = ask("GET", f"/v1/segments?after={first['next']}")
        assert rest["segments"] == whole["segments"][1:]


async def test_a_node_is_ready_while_it_serves_and_healthy_until_it_stops(web: Web) -> None:
    host = {"Host": "loadbalancer.example"}
    state = {"status": "ok", "conditions": [], "node": 1, "cluster": web.node.server.node.cluster_id}
    assert await web.ask("GET", "/ready", **host) == (200, state)
    web.node.engine.crash()
    assert [(await web.ask("GET", path))[0] for path in ("/ready", "/health")] == [503, 503]
    await until(lambda: web.node.server.node.metrics.cell_openings == 2)
    assert (await web.ask("GET", "/ready"))[0] == 200
    web.node.server.node.cell.current.coordinators.close()  # as a node begins to stop
    assert (await web.ask("GET", "/ready"))[0] == 503
    assert (await web.ask("GET", "/ready"))[1]["status"] == "stopping"
    assert (await web.ask("GET", "/health"))[0] == 200
