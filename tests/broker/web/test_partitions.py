"""A partition seen from inside over HTTP."""

from typing import Any

from pqbroker.pq.log.body import BodyName
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.store_refusals import DISK_FULL
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.unreadable import StoredUnreadable
from tests.broker.kafka.handlers.test_fetch import fetch_request
from tests.broker.web.conftest import Web

MIB = 1 << 20


async def inside(web: Web, partition: int = 0, query: str = "") -> Any:
    status, document = await web.ask("GET", f"/v1/topics/t/partitions/{partition}{query}")
    assert status == 200, document
    return document


async def test_an_empty_partition_has_nothing_inside(web: Web) -> None:
    await web.node.create_topic("t", 6)
    found = await inside(web, 5)
    _, topic = await web.ask("GET", "/v1/topics/t")
    shared = {"partition", "start_offset", "end_offset", "leader_epoch", "size_bytes", "tablet"}
    assert {name: found[name] for name in shared} == {name: topic["partitions"][5][name] for name in shared}
    assert [level["blobs"] for level in found["head"]["levels"]] == [[], [], [], []]
    assert found["body"] == {"size_bytes": 0, "count": 0, "blobs": []}
    assert found["written"]["amplification"] is None


async def test_head_blobs_stand_on_their_levels_and_bodies_below(web: Web) -> None:
    await web.node.create_topic("t", max_message_bytes=str(20 * MIB))
    await web.node.produce("t", b"v" * 7 * MIB)
    for size in (1000, 200_000, 100):
        await web.node.produce("t", b"v" * size)
    found = await inside(web)
    (body,) = found["body"]["blobs"]
    assert body["key"] == "d0000000000_00000000000000000000_00000_0000000001_00000"
    assert (body["offset"], body["end_offset"], body["created"]) == (0, 1, web.node.clock())
    assert found["body"]["size_bytes"] == body["size_bytes"] > 7 * MIB
    levels = found["head"]["levels"]
    assert [level["border_bytes"] for level in levels] == [32, 2048, 131_072, 8 * MIB]
    assert [[(blob["offset"], blob["end_offset"]) for blob in level["blobs"]] for level in levels] == [
        [], [(3, 4)], [], [(1, 3)],
    ]  # fmt: skip
    assert sum(level["size_bytes"] for level in levels) == found["head"]["size_bytes"]
    assert found["head"]["size_bytes"] + found["body"]["size_bytes"] == found["size_bytes"]
    written = found["written"]
    assert (written["records"], written["cycles"]) == (4, 4)
    assert written["rewritten_bytes"] == written["blob_bytes"] - written["bytes"] > 1000
    assert written["amplification"] == round(written["blob_bytes"] / written["bytes"], 3)


async def test_producers_and_consumers_are_listed_with_what_they_did(web: Web) -> None:
    await web.node.create_topic("t", pq_important_groups="g")
    for sequence in (0, 2):
        await web.node.produce("t", b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=sequence)
    groups = web.node.server.node.cell.current.topics
    await groups.offsets.commit("g", {("t", 0): ConsumerOffset(1, commit_ms=5)})
    await groups.offsets.commit("ahead", {("t", 0): ConsumerOffset(9, commit_ms=6)})
    found = await inside(web)
    assert found["producers"] == {
        "count": 1,
        "producers": [
            {"id": 7, "epoch": 3, "last_sequence": 3, "last_offset": 3, "last_written": web.node.clock()}
        ],
    }  # fmt: skip
    assert found["consumers"]["consumers"] == [
        {"group": "g", "offset": 1, "lag": 3, "committed": 5, "important": True},
        {"group": "ahead", "offset": 9, "lag": 0, "committed": 6, "important": False},
    ]
    assert found["leader_epochs"] == [{"leader_epoch": 1, "start_offset": 0}]


async def test_it_is_told_why_the_oldest_data_is_still_held(web: Web) -> None:
    await web.node.create_topic("t", retention_ms="1000", pq_important_groups="a,g")
    assert (await inside(web))["oldest_data"]["held_by"] == "empty"
    await web.node.produce("t", b"v")
    young = (await inside(web))["oldest_data"]
    assert (young["held_by"], young["until"], young["groups"]) == ("young", web.node.clock() + 1000, [])
    web.node.clock.now_ms += 1000
    await web.node.server.node.cell.current.topics.offsets.commit("a", {("t", 0): ConsumerOffset(1)})
    held = (await inside(web))["oldest_data"]
    assert (held["held_by"], held["until"], held["groups"]) == ("consumer", None, ["g"])
    assert "let them read it" in held["reason"]
    await web.node.server.node.cell.current.topics.offsets.commit("g", {("t", 0): ConsumerOffset(1)})
    assert (await inside(web))["oldest_data"]["held_by"] == "due"


async def test_each_list_has_a_limit_and_tells_the_count(web: Web) -> None:
    await web.node.create_topic("t", pq_low_watermark_bytes="1024")
    for number in range(3):
        await web.node.produce("t", b"v" * 2000, producer_id=number, producer_epoch=0, base_sequence=0)
    found = await inside(web, query="?limit=2")
    assert [blob["offset"] for blob in found["body"]["blobs"]] == [0, 1]
    assert found["body"]["count"] == 3
    assert [one["id"] for one in found["producers"]["producers"]] == [0, 1]
    assert found["producers"]["count"] == 3


async def test_reads_are_counted_by_where_they_found_the_records(web: Web) -> None:
    await web.node.create_topic("t", pq_low_watermark_bytes="1024")
    await web.node.produce("t", b"v" * 2000)
    client = await web.node.connect()
    await client.ask(fetch_request((0, 0)), 12)
    from_memory = (await inside(web))["read"]
    assert (from_memory["reads_from_memory"], from_memory["reads_from_store"]) == (1, 0)
    web.node.server.node.cell.current.topics.memory.cache.forget(1, BodyName(0, 0), 2)
    await client.ask(fetch_request((0, 0)), 12)
    found = (await inside(web))["read"]
    assert (found["reads"], found["reads_from_memory"], found["reads_from_store"]) == (2, 1, 1)
    assert found["bytes"] == 2 * from_memory["bytes"] > 4000


async def test_a_partition_that_is_not_there_is_refused(web: Web) -> None:
    await web.node.create_topic("t")
    for path in ("/v1/topics/t/partitions/1", "/v1/topics/u/partitions/0"):
        assert (await web.refusal("GET", path))[:2] == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert (await web.refusal("GET", "/v1/topics/t/partitions/x"))[:2] == (400, "INVALID_REQUEST")


async def test_a_partition_that_refuses_writes_says_why(web: Web) -> None:
    node = web.node
    taken = {"are_taken": True, "refused_by": None, "reason": None}
    await node.create_topic("t", 2)
    assert (await inside(web))["writes"] == taken
    node.engine.tell_colour(Colour.YELLOW_STOP)
    assert (await inside(web))["writes"] == {"are_taken": False, "refused_by": "disk", "reason": DISK_FULL}
    node.engine.tell_colour(None)
    groups = node.server.node.cell.current.topics
    await groups.reconfigure("t", lambda _: {"pq.inactive.partitions": "1"})
    assert (await inside(web))["writes"] == taken
    assert (await inside(web, 1))["writes"]["refused_by"] == "inactive"
    await groups.reconfigure("t", lambda _: {"pq.max.count.in.partition": "1"})
    await node.produce("t", b"a")
    found = (await inside(web))["writes"]
    assert (found["refused_by"], found["reason"]) == ("full", "the partition holds pq.max.count.in.partition=1")
    _, topic = await web.ask("GET", "/v1/topics/t")
    assert [one["writes_refused_by"] for one in topic["partitions"]] == ["full", None]


async def test_a_partition_whose_rows_are_damaged_says_so_and_is_told_apart_by_clients(web: Web) -> None:
    node = web.node
    await node.create_topic("t", 2)
    await node.produce("t", b"a", partition=1)
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    topic.partitions[0].refuse(StoredUnreadable("the row of key 'i0000000000'", "it is of version 9"))
    found = await inside(web)
    assert found["writes"]["refused_by"] == "unreadable"
    assert "key 'i0000000000' cannot be read: it is of version 9" in found["writes"]["reason"]
    assert (await inside(web, 1))["writes"]["are_taken"]
    assert (await node.produce("t", b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    client = await node.connect()
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    offsets = (await client.ask(asked, 9)).groups[0].topics[0].partitions
    assert [one.error_code for one in offsets] == [ErrorCode.CORRUPT_MESSAGE, 0]
    answer = await client.ask(fetch_request((0, 0)), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
