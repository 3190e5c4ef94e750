"""Transactional ids of Kafka producers over HTTP."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from tests.broker.kafka.transacting import WireProducer, committed_values
from tests.broker.web.conftest import Web


@pytest.fixture
async def web(serve: Callable[..., Awaitable[Web]]) -> Web:
    """A node with a topic t of three partitions."""
    web = await serve()
    await web.node.create_topic("t", 3)
    return web


async def opened(web: Web, name: str = "x/y") -> WireProducer:
    """A producer with an open transaction in two partitions, and an offset."""
    producer = WireProducer(await web.node.connect(), name)
    await producer.begin()
    for index in (0, 2):
        assert await producer.produce("t", b"v", index, version=12) == "NONE"
    assert await producer.commit_offset("t", 5, version=5) == "NONE"
    return producer


async def test_ids_are_listed_by_name_and_state_a_page_at_a_time(web: Web) -> None:
    await opened(web, "b")
    await WireProducer(await web.node.connect(), "a").begin()

    async def listed(query: str = "") -> list[Any]:
        status, answer = await web.ask("GET", f"/v1/transactional-ids{query}")
        assert status == 200, answer
        return [each["name"] for each in answer["transactional_ids"]] + [answer["next"]]

    assert await listed() == ["a", "b", None]
    assert await listed("?state=Ongoing") == ["b", None]
    assert await listed("?state=CompleteAbort") == [None]
    assert await listed("?limit=1") == ["a", "a"]
    assert await listed("?limit=1&after=a") == ["b", None]
    status, _, text = await web.refusal("GET", "/v1/transactional-ids?state=Odd")
    assert status == 400
    assert "Ongoing" in text


async def test_an_id_is_described_with_what_its_transaction_holds(web: Web) -> None:
    producer = await opened(web)
    web.node.clock.now_ms += 7
    status, found = await web.ask("GET", "/v1/transactional-ids/x%2Fy")
    assert status == 200
    assert (found["name"], found["state"], found["timeout_ms"]) == ("x/y", "Ongoing", 60_000)
    assert (found["producer_id"], found["producer_epoch"]) == producer.claim
    assert found["started"] == web.node.clock.now_ms - 7
    assert found["topics"] == [{"topic": "t", "partitions": [0, 2]}]
    assert (found["partition_count"], found["groups"]) == (2, ["g"])
    assert found["offsets"] == [{"group": "g", "topic": "t", "partition": 0, "offset": 5}]
    status, code, _ = await web.refusal("GET", "/v1/transactional-ids/nope")
    assert (status, code) == (404, "TRANSACTIONAL_ID_NOT_FOUND")


async def test_an_open_transaction_is_aborted_whole_and_its_producer_fenced(web: Web) -> None:
    producer = await opened(web)
    status, found = await web.ask("POST", "/v1/transactional-ids/x%2Fy/abort", {})
    assert (status, found["state"], found["partition_count"]) == (200, "CompleteAbort", 0)
    assert await producer.end(is_commit=True) == "PRODUCER_FENCED"
    assert await committed_values(producer.client, "t", 2) == []
    status, code, _ = await web.refusal("POST", "/v1/transactional-ids/nope/abort", {})
    assert (status, code) == (404, "TRANSACTIONAL_ID_NOT_FOUND")


async def test_an_abort_leaves_a_committed_transaction_alone(web: Web) -> None:
    producer = await opened(web)
    await producer.end(is_commit=True)
    await producer.until_state("CompleteCommit")
    status, found = await web.ask("POST", "/v1/transactional-ids/x%2Fy/abort", {})
    assert (status, found["state"]) == (200, "CompleteCommit")
    assert await producer.begin() is ErrorCode.NONE


async def test_ids_and_their_ends_are_counted(web: Web) -> None:
    producer = await opened(web)
    web.node.clock.now_ms += 1500
    text = await web.text("/metrics")
    assert 'pqbroker_transactional_ids{state="Ongoing"} 1.0' in text
    assert "pqbroker_transactional_oldest_seconds 1.5" in text
    assert "pqbroker_stable_offset_oldest_seconds 1.5" in text
    await producer.end(is_commit=True)
    await producer.until_state("CompleteCommit")
    text = await web.text("/metrics")
    assert 'pqbroker_transactional_ends_total{outcome="committed"} 1.0' in text
    assert "pqbroker_transactional_oldest_seconds 0.0" in text
    assert "pqbroker_stable_offset_oldest_seconds 0.0" in text
