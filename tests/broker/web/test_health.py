"""Each door shows one state: /health, /ready, /v1/node, events, metrics and the log, while it holds and after it."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pqbroker.storage.pool_status import Colour
from pqbroker.testing import broker
from tests.broker.web.conftest import Web

Serve = Callable[..., Awaitable[Web]]


async def shown(web: Web) -> dict[str, list[tuple[str, str]]]:
    """Kinds and places of the conditions, by door."""
    found = {}
    for path in ("/health", "/ready", "/v1/node"):
        _, document = await web.ask("GET", path)
        found[path] = [(one["kind"], one["place"]) for one in document["conditions"]]
        assert all(one["cause"] and one["cure"] and one["affects"] for one in document["conditions"])
    return found


async def expect(web: Web, *conditions: tuple[str, str]) -> None:
    """Wait until each door shows the conditions."""
    wanted = {path: list(conditions) for path in ("/health", "/ready", "/v1/node")}
    deadline = time.monotonic() + 20
    while (found := await shown(web)) != wanted:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)
    text = await web.text("/metrics")
    for kind in {kind for kind, _ in conditions}:
        count = sum(one == kind for one, _ in conditions)
        assert f'pqbroker_conditions{{kind="{kind}"}} {count}' in text


async def test_a_disk_that_fills_is_shown_everywhere_and_again_when_it_is_over(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    web = await serve(test_door=True)
    await expect(web)
    web.node.engine.tell_colour(Colour.LIGHT_YELLOW_MOVE, "main")
    await expect(web, ("disk-nearly-full", "cell 0, pool main"))
    assert (await web.ask("GET", "/health"))[1]["status"] == "ok"
    web.node.engine.tell_colour(Colour.YELLOW_STOP, "main")
    await expect(web, ("disk-full", "cell 0, pool main"))
    status, document = await web.ask("GET", "/ready")
    assert (status, document["status"]) == (200, "degraded")
    assert "disk-full at cell 0, pool main: the disk is full" in caplog.text
    assert "delete records" in caplog.text
    web.node.engine.tell_colour(None, "main")
    await expect(web)
    assert (await web.ask("GET", "/health"))[1]["status"] == "ok"


async def test_a_refused_request_is_a_condition(serve: Serve) -> None:
    web = await serve()
    web.node.server.node.metrics.count_http("", "", 503)
    await expect(web, ("refusing", "HTTP requests"))


async def test_a_clock_that_jumps_is_a_warning(serve: Serve) -> None:
    web = await serve(test_door=True)
    await expect(web)
    await web.ask("POST", "/v1/test/clock", {"advance_ms": 3_600_000})
    await expect(web, ("clock-jumped", "the clock of the machine"))
    _, document = await web.ask("GET", "/health")
    assert document["status"] == "ok"
    assert "forward by 3600 s" in document["conditions"][0]["cause"]


async def test_workers_that_die_are_a_condition(serve: Serve) -> None:
    web = await serve()
    await expect(web)
    web.node.server.node.workers.counters.workers_lost += 3
    await expect(web, ("workers-failing", "worker processes of SQL queries"))


async def test_events_carry_the_state(serve: Serve) -> None:
    web = await serve()
    web.node.engine.tell_colour(Colour.ORANGE_OUT_SPACE, "main")
    await expect(web, ("disk-full", "cell 0, pool main"))
    async with aiohttp.ClientSession() as session, session.get(web.url("/v1/events")) as stream:
        event = json.loads(await stream.content.readline())
    assert (event["status"], event["conditions"][0]["kind"]) == ("degraded", "disk-full")


def test_a_stalled_disk_is_shown_while_no_door_waits_for_it(tmp_path: Path) -> None:
    with broker(tmp_path / "data", {"pqbroker.test.door": "true"}) as running:

        def ask(method: str, path: str, body: Any = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            kind = {"Content-Type": "application/json"}
            asked = urllib.request.Request(f"http://{running.http}{path}", data, kind, method=method)
            with urllib.request.urlopen(asked, timeout=30) as found:
                return json.load(found)

        def conditions() -> list[tuple[str, str]]:
            return [(one["kind"], one["place"]) for one in ask("GET", "/health")["conditions"]]

        ask("POST", "/v1/topics", {"name": "t"})
        ask("POST", "/v1/test/store", {"fault": "hold"})
        with ThreadPoolExecutor(1) as another:
            written = another.submit(ask, "POST", "/v1/topics/t/records", {"records": [{"value": "v"}]})
            deadline = time.monotonic() + 20
            while ("sync-slow", "cell 0") not in conditions():
                assert time.monotonic() < deadline
            assert "a round of commits took" in ask("GET", "/ready")["conditions"][0]["cause"]
            assert not written.done()
            ask("POST", "/v1/test/store", {"fault": "clear"})
            assert written.result()
