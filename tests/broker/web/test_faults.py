"""Faults of the store on cue: what clients of a test broker see."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.testing import broker
from tests.broker.conftest import until
from tests.broker.web.conftest import Web


@pytest.fixture
async def web(serve: Callable[..., Awaitable[Web]]) -> Web:
    """A test broker with a topic."""
    web = await serve(test_door=True)
    await web.node.create_topic("t")
    return web


async def fault(web: Web, name: str, **fields: Any) -> Any:
    status, document = await web.ask("POST", "/v1/test/store", {"fault": name, **fields})
    assert status == 200, document
    return document


async def produced(web: Web) -> ErrorCode:
    code: ErrorCode = (await web.node.produce("t", b"v")).error_code
    return code


async def values(web: Web) -> int:
    _, document = await web.ask("GET", "/v1/topics/t/records")
    return len(document["records"])


@pytest.mark.spec("A.5.10")
async def test_a_commit_is_refused_and_the_next_one_is_not(web: Web) -> None:
    await fault(web, "refuse_next")
    assert await produced(web) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await produced(web) is ErrorCode.NONE
    await fault(web, "refuse_next", after=1)
    assert [await produced(web), await produced(web)] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    assert await values(web) == 2


@pytest.mark.spec("A.12.2", "J.1", "G.2", "G.5")
async def test_a_full_disk_refuses_records_until_there_is_room(web: Web) -> None:
    assert await produced(web) is ErrorCode.NONE
    assert (await fault(web, "fill"))["full"]
    assert [await produced(web), await produced(web)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert await values(web) == 1
    assert not (await fault(web, "make_room"))["full"]
    assert await produced(web) is ErrorCode.NONE


async def test_a_lost_store_is_opened_again_with_all_that_was_acknowledged(web: Web) -> None:
    assert await produced(web) is ErrorCode.NONE
    await fault(web, "lose_next")
    assert await produced(web) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await until(lambda: web.node.server.node.metrics.cell_openings == 2)
    assert await produced(web) is ErrorCode.NONE
    assert await values(web) == 2


async def test_commits_are_held_and_released(web: Web) -> None:
    assert (await fault(web, "hold"))["holding"]
    write = asyncio.create_task(produced(web))
    topic = web.node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await until(lambda: topic.partitions[0].writer.queue.in_flight_bytes > 0)
    assert (await web.ask("GET", "/health"))[0] == 200
    assert not write.done()
    assert not (await fault(web, "clear"))["holding"]
    assert await write is ErrorCode.NONE


async def test_an_unknown_fault_is_refused(web: Web) -> None:
    status, code, message = await web.refusal("POST", "/v1/test/store", {"fault": "fire"})
    assert (status, code) == (400, "INVALID_REQUEST")
    assert "refuse_next" in message


async def test_a_broker_that_is_not_for_tests_takes_no_fault(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve()
    assert (await web.refusal("POST", "/v1/test/store", {"fault": "fill"}))[:2] == (404, "NO_TEST_DOOR")
    assert (await web.refusal("GET", "/v1/test/store"))[:2] == (404, "NO_TEST_DOOR")


def test_a_broker_on_a_disk_meets_them_too(tmp_path: Path) -> None:
    with broker(tmp_path / "data", {"pqbroker.test.door": "true"}) as running:

        def ask(path: str, body: Any) -> int:
            data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
            asked = urllib.request.Request(f"http://{running.http}{path}", data, kind)
            try:
                with urllib.request.urlopen(asked) as found:
                    return int(found.status)
            except urllib.error.HTTPError as refused:
                return refused.code

        written = "/v1/topics/t/records", {"records": [{"value": "v"}]}
        assert ask("/v1/topics", {"name": "t"}) == 201
        for name, status in (("fill", 503), ("make_room", 201), ("refuse_next", 503), ("clear", 201)):
            assert ask("/v1/test/store", {"fault": name}) == 200
            assert ask(*written) == status
        assert "pqbroker.test.door=true" in running.log
