"""The main figures of the last minutes, and the last lines of the log."""

import logging
from typing import Any

from pqbroker.broker.ground import log_tail
from pqbroker.broker.ground.series import COUNTERS, GAUGES, POINTS_MAX, Series
from tests.broker.web.conftest import Web

LOG = logging.getLogger("pqbroker.tests")


async def get(web: Web, path: str) -> Any:
    status, document = await web.ask("GET", path)
    assert status == 200, document
    return document


async def test_figures_are_points_of_what_the_node_did(web: Web) -> None:
    node = web.node.server.node
    before = node.series.read()
    assert set(before) == {*COUNTERS, *GAUGES}
    await web.node.create_topic("t")
    await web.node.produce("t", b"a" * 5000)
    first = await get(web, "/v1/series")
    assert first["times"] == [node.clock()] * len(first["times"])
    web.node.clock.now_ms += 5000
    node.series.take(node.clock())
    found = await get(web, "/v1/series")
    values = {one["name"]: one["values"] for one in found["series"]}
    assert values["bytes_in"][-1] - values["bytes_in"][0] > 5000
    assert (values["produce_requests"][0], values["produce_requests"][-1]) == (0, 1)
    assert (values["connections"][0], values["connections"][-1]) == (0, 2)
    assert values["commits"][-1] > values["commits"][0]
    later = await get(web, f"/v1/series?after={first['times'][0]}")
    assert set(later["times"]) == {node.clock()}


def test_the_oldest_point_goes() -> None:
    series = Series(dict)
    for number in range(POINTS_MAX + 5):
        series.take(number)
    assert [time for time, _ in series.after(-1)] == list(range(5, POINTS_MAX + 5))


async def test_the_log_shows_its_last_lines_by_level(web: Web, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "pqbroker")
    LOG.info("first")
    LOG.warning("second %d", 2)
    try:
        raise ValueError("why")
    except ValueError:
        LOG.exception("third")
    shown = (await get(web, "/v1/log"))["lines"][-3:]
    assert [line["message"] for line in shown] == ["first", "second 2", "third: ValueError('why')"]
    assert [line["level"] for line in shown] == ["info", "warning", "error"]
    (last,) = (await get(web, "/v1/log?level=warning&limit=1"))["lines"]
    assert last == shown[2]
    after = await get(web, f"/v1/log?after={shown[0]['number']}")
    assert after["lines"] == shown[1:]
    refused = await web.refusal("GET", "/v1/log?level=loud")
    assert refused[0] == 400
    assert "info, warning" in refused[2]


async def test_the_log_in_memory_is_bounded(web: Web) -> None:
    LOG.warning("x" * 10_000)
    (line,) = (await get(web, "/v1/log?limit=1"))["lines"]
    assert len(line["message"]) == log_tail.LINE_CHARACTERS_MAX + 1
    for number in range(log_tail.LINES_MAX + 5):
        LOG.warning("%d", number)
    tail = web.node.server.node.log_tail
    assert tail is not None
    kept = tail.after(0)
    assert len(kept) == log_tail.LINES_MAX
    assert kept[-1].message == str(log_tail.LINES_MAX + 4)


async def test_a_node_that_stopped_listens_to_no_log(web: Web) -> None:
    tail = web.node.server.node.log_tail
    await web.node.server.stop()
    assert tail not in logging.getLogger("pqbroker").handlers
