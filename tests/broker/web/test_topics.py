from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.broker.web.conftest import Web


async def test_a_topic_is_created_described_listed_and_deleted(web: Web) -> None:
    body = {"name": "t", "partitions": 5, "config": {"retention.ms": 1000, "pq.partitions.per.tablet": "2"}}
    status, created = await web.ask("POST", "/v1/topics", body)
    assert status == 201
    topic = web.node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert created["id"] == urlsafe_b64encode(topic.record.topic_id).decode().rstrip("=")
    assert len({partition["tablet"] for partition in created["partitions"]}) == 3
    assert await web.ask("GET", "/v1/topics/t") == (200, created)
    _, listed = await web.ask("GET", "/v1/topics")
    facts = {key: created[key] for key in created.keys() & listed["topics"][0].keys()}
    assert listed == {"cell": "0", "topics": [facts], "total": 1, "next": None}
    assert await web.ask("DELETE", "/v1/topics/t") == (204, None)
    assert await web.ask("GET", "/v1/topics") == (200, {"cell": "0", "topics": [], "total": 0, "next": None})


async def test_offsets_and_sizes_are_told(web: Web) -> None:
    await web.node.create_topic("t")
    await web.node.produce("t", b"a", b"b")
    _, topic = await web.ask("GET", "/v1/topics/t")
    partition = topic["partitions"][0]
    assert (partition["start_offset"], partition["end_offset"]) == (0, 2)
    assert topic["size_bytes"] == partition["size_bytes"] > 0


async def test_topics_and_partitions_are_listed_a_page_at_a_time(web: Web) -> None:
    for name in ("c", "a", "b"):
        await web.node.create_topic(name, 3)
    _, first = await web.ask("GET", "/v1/topics?limit=2")
    assert ([topic["name"] for topic in first["topics"]], first["next"]) == (["a", "b"], "b")
    _, second = await web.ask("GET", "/v1/topics?after=b&limit=2")
    assert ([topic["name"] for topic in second["topics"]], second["next"]) == (["c"], None)
    _, first = await web.ask("GET", "/v1/topics/a?limit=2")
    assert ([one["partition"] for one in first["partitions"]], first["next"]) == ([0, 1], 1)
    _, second = await web.ask("GET", "/v1/topics/a?after=1")
    assert ([one["partition"] for one in second["partitions"]], second["next"]) == ([2], None)


async def test_topics_are_found_by_a_part_of_the_name_whatever_its_case(web: Web) -> None:
    for name in ("Orders.eu", "orders.us", "users"):
        await web.node.create_topic(name)
    _, found = await web.ask("GET", "/v1/topics?contains=ORDERS&limit=1")
    assert [topic["name"] for topic in found["topics"]] == ["Orders.eu"]
    assert (found["total"], found["next"]) == (2, "Orders.eu")
    _, found = await web.ask("GET", "/v1/topics?contains=orders&after=Orders.eu")
    assert ([topic["name"] for topic in found["topics"]], found["next"]) == (["orders.us"], None)


async def test_topics_are_sorted_by_any_figure_in_pages(web: Web) -> None:
    for name, partitions, records in (("a", 3, 1), ("b", 1, 3), ("c", 2, 2), ("d", 1, 2)):
        await web.node.create_topic(name, partitions)
        await web.node.produce(name, *[b"v"] * records)
    for order, names in (
        ("sort=partitions", "acbd"), ("sort=records", "bcda"), ("sort=written&order=ascending", "acdb"),
        ("sort=name&order=descending", "dcba"), ("order=descending", "dcba"), ("order=ascending", "abcd"),
    ):  # fmt: skip
        _, first = await web.ask("GET", f"/v1/topics?{order}&limit=2")
        _, second = await web.ask("GET", f"/v1/topics?{order}&limit=2&after={first['next']}")
        assert "".join(topic["name"] for topic in (*first["topics"], *second["topics"])) == names, order
        assert (first["total"], second["next"]) == (4, None)
    for wrong in ("sort=colour", "sort=size&order=up", "sort=size&after=x", "sort=size&after=x:a"):
        assert (await web.refusal("GET", f"/v1/topics?{wrong}"))[0] == 400, wrong


async def test_a_topic_shows_the_records_a_second_that_it_is_given(web: Web) -> None:
    for name in ("busy", "quiet"):
        await web.node.create_topic(name)

    async def rates() -> list[tuple[str, float | None]]:
        _, found = await web.ask("GET", "/v1/topics?sort=rate")
        return [(topic["name"], topic["records_per_s"]) for topic in found["topics"]]

    assert await rates() == [("busy", None), ("quiet", None)]
    await web.node.produce("busy", *[b"v"] * 30)
    web.node.clock.now_ms += 3000
    assert await rates() == [("busy", 10), ("quiet", 0)]


async def test_a_topic_grows_and_keeps_what_it_has(web: Web) -> None:
    await web.node.create_topic("t", 3)
    await web.node.produce("t", b"a", partition=2)
    status, grown = await web.ask("POST", "/v1/topics/t/partitions", {"count": 5})
    assert status == 200
    assert [partition["end_offset"] for partition in grown["partitions"]] == [0, 0, 1, 0, 0]
    for count in (5, 3):
        assert (await web.refusal("POST", "/v1/topics/t/partitions", {"count": count}))[:2] == (
            400, "INVALID_PARTITIONS",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "word"),
    [
        ("GET", "/v1/topics/x", None, 404, "UNKNOWN_TOPIC_OR_PARTITION", "no topic 'x'"),
        ("DELETE", "/v1/topics/x", None, 404, "UNKNOWN_TOPIC_OR_PARTITION", "no topic 'x'"),
        ("POST", "/v1/topics/x/partitions", {"count": 2}, 404, "UNKNOWN_TOPIC_OR_PARTITION", "no topic 'x'"),
        ("POST", "/v1/topics", {"name": "t"}, 409, "TOPIC_ALREADY_EXISTS", "t exists"),
        ("POST", "/v1/topics", {"name": "a b"}, 400, "INVALID_TOPIC_EXCEPTION", "ASCII"),
        ("POST", "/v1/topics", {"name": "u", "partitions": 20_001}, 400, "INVALID_PARTITIONS", "20000"),
        ("POST", "/v1/topics", {"name": "u", "config": {"x": "1"}}, 400, "INVALID_CONFIG", "unknown"),
        ("POST", "/v1/topics", {"name": "u", "config": {"retention.ms": "x"}}, 400, "INVALID_CONFIG", "retention.ms"),
        ("POST", "/v1/topics", {"name": 1}, 400, "INVALID_BODY", "body.name is integer; give string"),
        ("POST", "/v1/topics", {"name": "u", "partitions": True}, 400, "INVALID_BODY", "boolean"),
        ("POST", "/v1/topics", {"name": "u", "partition": 1}, 400, "INVALID_BODY", "did you mean 'partitions'?"),
        ("POST", "/v1/topics", {}, 400, "INVALID_BODY", "no field 'name'"),
        ("POST", "/v1/topics", [], 400, "INVALID_BODY", "body is array"),
        ("POST", "/v1/topics", b"{", 400, "INVALID_BODY", "no JSON"),
        ("POST", "/v1/topics", b"", 400, "INVALID_BODY", "no JSON"),
        ("POST", "/v1/topics/t/partitions", {"count": 0}, 400, "INVALID_BODY", "least allowed is 1"),
        ("POST", "/v1/topics/t/partitions", {"count": 20_001}, 400, "INVALID_PARTITIONS", "20000"),
        ("GET", "/v1/topics?limit=x", None, 400, "INVALID_REQUEST", "limit"),
        ("GET", "/v1/topics?limit=1001", None, 400, "INVALID_REQUEST", "pqbroker.http.items.max"),
        ("GET", "/v1/topics?size=1", None, 400, "INVALID_REQUEST", "unknown parameter 'size'"),
        ("GET", "/v1/topics?limit=1&limit=2", None, 400, "INVALID_REQUEST", "twice"),
        ("GET", "/v1/nothing", None, 404, "NOT_FOUND", "/v1/nothing"),
        ("PUT", "/v1/topics", None, 405, "METHOD_NOT_ALLOWED", "PUT"),
    ],
)
async def test_what_cannot_be_is_refused(
    web: Web, method: str, path: str, body: Any, status: int, code: str, word: str
) -> None:
    await web.node.create_topic("t")
    refused = await web.refusal(method, path, body)
    assert refused[:2] == (status, code)
    assert word in refused[2]


async def test_a_topic_grows_no_further_than_the_node_allows(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(topic_partitions_max=3)
    await web.node.create_topic("t")
    refused = await web.refusal("POST", "/v1/topics/t/partitions", {"count": 4})
    assert refused[:2] == (400, "INVALID_PARTITIONS")
    assert (await web.ask("POST", "/v1/topics/t/partitions", {"count": 3}))[0] == 200


async def test_a_body_that_a_browser_sends_across_sites_is_refused(web: Web) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        refused = await web.refusal("POST", "/v1/topics", {"name": "t"}, Content_Type=content_type)
        assert refused[:2] == (415, "NOT_JSON")
    assert list(web.node.server.node.cell.current.topics.names()) == []


async def test_a_body_too_large_is_refused(web: Web) -> None:
    body = {"name": "x" * web.node.server.node.settings.http_body_bytes_max}
    assert (await web.refusal("POST", "/v1/topics", body))[:2] == (413, "BODY_TOO_LARGE")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_is_not_compressed_as_it_says_is_refused(web: Web, encoding: str) -> None:
    refused = await web.refusal("POST", "/v1/topics", b"no such thing", Content_Encoding=encoding)
    assert refused[:2] == (400, "INVALID_REQUEST")
    assert "Content-Encoding" in refused[2]


async def test_a_lost_cell_is_told_as_something_to_wait_for(web: Web) -> None:
    await web.node.create_topic("t")
    await web.node.engine.open()
    await web.node.produce("t", b"a")
    status, code, _ = await web.refusal("POST", "/v1/topics", {"name": "u"})
    assert (status, code) == (503, "KAFKA_STORAGE_ERROR")


async def test_requests_are_counted_by_path_as_documented(web: Web) -> None:
    await web.node.create_topic("t")
    await web.ask("GET", "/v1/topics/t")
    await web.ask("GET", "/v1/topics/u")
    await web.ask("GET", "/somewhere")
    lines = (await web.text("/metrics")).splitlines()
    assert 'pqbroker_http_requests_total{method="GET",path="/v1/topics/{name}",status="200"} 1.0' in lines
    assert 'pqbroker_http_requests_total{method="GET",path="/v1/topics/{name}",status="404"} 1.0' in lines
    assert 'pqbroker_http_requests_total{method="",path="",status="404"} 1.0' in lines
