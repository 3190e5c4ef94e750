"""Tablets, their keys and their blobs over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.broker.web.resources.keys import parse_key, show_key
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.ids import TabletId
from pqbroker.storage.pool_status import Colour
from tests.broker.web.conftest import Web

SCHEME = 1


async def tablet_of(web: Web, topic: str, partition: int = 0) -> int:
    _, document = await web.ask("GET", f"/v1/topics/{topic}")
    tablet: int = document["partitions"][partition]["tablet"]
    return tablet


async def pages(web: Web, path: str, items: str, parameter: str) -> list[Any]:
    """All items, two at a time."""
    found: list[Any] = []
    after = ""
    while True:
        status, page = await web.ask("GET", f"{path}limit=2{after}")
        assert status == 200, page
        assert len(page[items]) <= 2
        found += page[items]
        if page["next"] is None:
            return found
        after = f"&{parameter}={page['next']}"


async def test_tablets_are_listed_a_page_at_a_time_with_what_they_are(web: Web) -> None:
    await web.node.create_topic("t", 5, pq_partitions_per_tablet="2")
    listed = await pages(web, "/v1/tablets?", "tablets", "after")
    cell = web.node.server.node.cell.current.topics.get("t")
    assert cell is not None
    assert [one["id"] for one in listed] == sorted(one["id"] for one in listed)
    assert {one["type"] for one in listed} == {"scheme", "coordinator", "persqueue"}
    assert {one["cell"] for one in listed} == {"0"}
    ours = [one for one in listed if one["topic"] == "t"]
    assert [one["id"] for one in ours] == list(cell.record.tablets)
    assert [one["partition_count"] for one in ours] == [2, 2, 1]
    assert {(one["owner"], one["state"], one["generation"]) for one in ours} == {
        (cell.record.topic_id.hex(), "running", 1)
    }


async def test_a_tablet_is_described_with_its_channels(web: Web) -> None:
    await web.node.create_topic("t", 2)
    await web.node.produce("t", b"v" * 2000, partition=1)
    tablet = await tablet_of(web, "t")
    status, found = await web.ask("GET", f"/v1/tablets/{tablet}")
    assert status == 200
    assert (found["id"], found["topic"], found["partitions"]) == (tablet, "t", [0, 1])
    assert (found["generation"], found["blocked_generation"]) == (1, 0)
    assert [(one["channel"], one["holds"]) for one in found["channels"]] == [
        (0, "log"), (1, "snapshots"), (2, "data"),
    ]  # fmt: skip
    for channel in found["channels"]:
        assert channel["history"] == [{"from_generation": 1, "pool_number": 0, "pool": "main", "group": 0}]
        assert channel["index_below_bytes"] == 1000
        assert (channel["pool"], channel["soft_barrier"], channel["hard_barrier"]) == ("main", None, None)
    _, topic = await web.ask("GET", "/v1/topics/t")
    assert found["size_bytes"] == topic["size_bytes"] > 2000
    assert found["key_count"] == 2
    assert found["commits"] == 1
    assert found["start_ms"] >= 0
    assert [one["puts"] for one in found["channels"]] == [0, 0, 1]
    assert found["channels"][2]["put_bytes"] == found["size_bytes"]


async def test_a_channel_tells_how_full_it_is(web: Web) -> None:
    tablet = await tablet_of_new_topic(web)
    web.node.engine.tell_colour(Colour.YELLOW_STOP)
    _, found = await web.ask("GET", f"/v1/tablets/{tablet}")
    assert {channel["status"] for channel in found["channels"]} == {"yellow_stop"}


async def test_a_barrier_is_told_once_garbage_was_collected(web: Web) -> None:
    tablet = await tablet_of_new_topic(web)
    topic = web.node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await topic.tablets[TabletId(tablet)].kv.storage.collect_garbage(0, 1, 7)
    _, found = await web.ask("GET", f"/v1/tablets/{tablet}")
    assert found["channels"][0]["soft_barrier"] == {"generation": 1, "step": 7}
    assert found["channels"][1]["soft_barrier"] is None


async def test_a_tablet_of_a_deleted_topic_is_there_until_its_space_is_back(web: Web) -> None:
    tablet = await tablet_of_new_topic(web)
    await web.node.produce("t", b"v" * 2000)
    _, before = await web.ask("GET", f"/v1/tablets/{tablet}")
    await web.node.server.node.cell.current.topics.delete("t")
    web.node.engine.faults.hold()
    _, found = await web.ask("GET", f"/v1/tablets/{tablet}")
    assert (found["topic"], found["partition_count"], found["key_count"]) == (None, 0, None)
    assert (await web.refusal("GET", f"/v1/tablets/{tablet}/keys"))[:2] == (409, "TABLET_NOT_SERVED")
    _, blobs = await web.ask("GET", f"/v1/blobs?tablet={tablet}")
    assert len(blobs["blobs"]) == 1
    states = [before["state"], found["state"]]
    while states[-1] is not None:
        web.node.engine.faults.release()
        await asyncio.sleep(0)
        web.node.engine.faults.hold()
        status, found = await web.ask("GET", f"/v1/tablets/{tablet}")
        states.append(found["state"] if status == 200 else None)
    web.node.engine.faults.release()
    assert list(dict.fromkeys(states)) == ["running", "dropping", None]


async def tablet_of_new_topic(web: Web) -> int:
    await web.node.create_topic("t")
    return await tablet_of(web, "t")


async def test_keys_are_listed_a_page_at_a_time_with_their_blobs(web: Web) -> None:
    tablet = await tablet_of_new_topic(web)
    for size in (10, 2000, 100_000):
        await web.node.produce("t", b"v" * size, producer_id=size, producer_epoch=0, base_sequence=0)
    listed = await pages(web, f"/v1/tablets/{tablet}/keys?", "keys", "from")
    keys = [one["key"] for one in listed]
    assert keys == sorted(keys)
    assert keys[:2] == [
        "d0000000000_00000000000000000000_00000_0000000002_00000|",
        "d0000000000_00000000000000000002_00000_0000000001_00000|",
    ]
    assert keys[-3:] == [f"m0000000000p{size:020}" for size in (10, 2000, 100_000)]
    data, producer = listed[1], listed[-1]
    assert producer["inline"] is True
    assert producer["blobs"] == []
    assert producer["created"] == web.node.clock()
    (blob,) = map(BlobId.parse, data["blobs"])
    assert (blob.tablet, blob.size) == (tablet, data["size_bytes"])
    blobs = await pages(web, f"/v1/blobs?tablet={tablet}&", "blobs", "after")
    assert sorted(one["id"] for one in blobs) == sorted(name for one in listed for name in one["blobs"])
    assert blobs[0] == {
        "id": blobs[0]["id"], "channel": 2, "generation": 1, "size_bytes": BlobId.parse(blobs[0]["id"]).size,
        "pool": "main",
    }  # fmt: skip


async def test_keys_begin_where_they_are_asked_to_and_end_with_the_answers_limit(
    serve: Callable[..., Awaitable[Web]],
) -> None:
    web = await serve(http_answer_bytes_max=1024)
    tablet = await tablet_of_new_topic(web)
    for producer_id in range(100):
        await web.node.produce("t", b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    _, first = await web.ask("GET", f"/v1/tablets/{tablet}/keys?from=m")
    assert 10 < len(first["keys"]) < 100
    assert first["keys"][0]["key"] == f"m0000000000p{0:020}"
    _, second = await web.ask("GET", f"/v1/tablets/{tablet}/keys?from={first['next']}")
    assert second["keys"][0]["key"] == f"m0000000000p{len(first['keys']):020}"


@given(st.binary())
def test_any_key_can_be_shown_and_read_back(key: bytes) -> None:
    text = show_key(key)
    assert text.isprintable()
    assert parse_key(text, "from") == key


@pytest.mark.parametrize(
    ("key", "text"),
    [(b"m1cgr\xc3\xbcn", "m1cgrün"), (b"a\\b", r"a\\b"), (b"\xff\x00\n", r"\xff\x00\x0a"), (b"a b", "a b")],
)
def test_keys_are_as_readable_as_they_can_be(key: bytes, text: str) -> None:
    assert show_key(key) == text


@pytest.mark.parametrize("text", ["\\", r"\n", r"\xg0", "a\\\\\\", r"\x1"])
def test_an_escape_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="single backslash"):
        parse_key(text, "from")


@pytest.mark.parametrize(
    ("path", "status", "code", "word"),
    [
        ("/v1/tablets/7", 404, "UNKNOWN_TABLET", "no tablet 7"),
        ("/v1/tablets/x", 400, "INVALID_REQUEST", "tablet is 'x'; give an integer"),
        ("/v1/tablets/7/keys", 404, "UNKNOWN_TABLET", "no tablet 7"),
        (f"/v1/tablets/{SCHEME}/keys", 409, "NO_KEYS", "row sets in log blobs"),
        ("/v1/tablets/65536/keys?from=%5C", 400, "INVALID_REQUEST", "single backslash"),
        ("/v1/tablets?limit=1001", 400, "INVALID_REQUEST", "pqbroker.http.items.max"),
        ("/v1/blobs", 400, "INVALID_REQUEST", "the parameter 'tablet' is missing"),
        ("/v1/blobs?tablet=7", 404, "UNKNOWN_TABLET", "no tablet 7"),
        ("/v1/blobs?tablet=1&after=x", 400, "INVALID_REQUEST", "no blob id"),
        ("/v1/blobs?tablet=1&after=[2:1:1:0:0:5:0]", 400, "INVALID_REQUEST", "of tablet 2, not of tablet 1"),
    ],
)
async def test_what_is_not_there_is_refused(web: Web, path: str, status: int, code: str, word: str) -> None:
    await web.node.create_topic("t")
    refused = await web.refusal("GET", path)
    assert refused[:2] == (status, code)
    assert word in refused[2]


async def test_the_scheme_tablet_has_blobs_and_a_log(web: Web) -> None:
    _, found = await web.ask("GET", f"/v1/tablets/{SCHEME}")
    assert (found["type"], found["owner"], found["topic"], found["key_count"]) == ("scheme", "scheme", None, None)
    _, blobs = await web.ask("GET", f"/v1/blobs?tablet={SCHEME}")
    assert {one["channel"] for one in blobs["blobs"]} == {0}
    before = {table["name"]: table["rows"] for table in found["row_sets"]}
    await web.node.create_topic("t")
    _, found = await web.ask("GET", f"/v1/tablets/{SCHEME}")
    after = {table["name"]: table["rows"] for table in found["row_sets"]}
    assert {name: after[name] - before[name] for name in ("topics", "names", "tombstones")} == {
        "topics": 1, "names": 1, "tombstones": 0,
    }  # fmt: skip


async def test_a_lost_cell_is_told_as_something_to_wait_for(web: Web) -> None:
    await web.node.engine.open()
    assert (await web.refusal("GET", f"/v1/blobs?tablet={SCHEME}"))[:2] == (503, "KAFKA_STORAGE_ERROR")
