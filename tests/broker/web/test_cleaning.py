"""Cleaning of compacted topics over HTTP: on command, by itself, shown, refused."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pqbroker.broker.services.cleaning.passes import PassRecord
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.records import TRANSACTIONAL, Record, batches, decode_records, encode_batch, read_header
from tests.broker.web.conftest import Web

USERS = "/v1/topics/users"
FILLER = "x" * 600
COMPACT = {"cleanup.policy": "compact"}
Shown = list[tuple[int, str, Any]]


async def create(web: Web, **config: Any) -> None:
    """Create a compacted topic whose head becomes a body at each kilobyte; it is cleaned on command alone."""
    texts = {"cleanup.policy": "compact", "pq.low.watermark.bytes": 1024, "min.cleanable.dirty.ratio": 1, **config}
    status, made = await web.ask("POST", "/v1/topics", {"name": "users", "config": texts})
    assert status == 201, made


async def produce(web: Web, *pairs: tuple[str, Any]) -> None:
    records = [{"key": key, "value": value, "timestamp": 5} for key, value in pairs]
    status, answer = await web.ask("POST", f"{USERS}/records", {"records": records})
    assert status == 201, answer


async def configure(web: Web, **config: Any) -> None:
    status, answer = await web.ask("PATCH", f"{USERS}/configs", {"configs": config})
    assert status == 200, answer


async def write_much(web: Web, first: int = 0, count: int = 20) -> None:
    """Write values of a few keys again and again."""
    for number in range(first, first + count):
        await produce(web, ("a", f"{number}"), (f"k{number % 3}", FILLER), ("b", "1"))


async def settled(web: Web) -> Any:
    """Return how the cleaning of the partition stands, once nothing is under way or due."""
    async with asyncio.timeout(60):
        while True:
            _, found = await web.ask("GET", f"{USERS}/partitions/0")
            if found["cleaning"]["state"] not in ("due", "cleaning"):
                return found["cleaning"]


async def clean(web: Web, **more: Any) -> Any:
    """Clean the topic, and return how its cleaning stands then."""
    status, asked = await web.ask("POST", f"{USERS}/clean", more)
    assert status == 202, asked
    return await settled(web)


async def read(web: Web) -> Shown:
    status, answer = await web.ask("GET", f"{USERS}/records?from=beginning&limit=1000")
    assert status == 200, answer
    return [(one["offset"], one["key"], one["value"]) for one in answer["records"]]


def last_of_each(records: Shown) -> Shown:
    return sorted({key: (offset, key, value) for offset, key, value in records}.values())


async def test_the_last_record_of_each_key_stays(web: Web) -> None:
    await create(web)
    await write_much(web)
    before = await read(web)
    done = await clean(web)
    last = last_of_each(before)
    assert await read(web) == last
    assert (done["state"], done["last"]["failure"], done["last"]["records_gone"]) == ("clean", "", 60 - len(last))
    assert done["cleaned_to"] == done["last"]["bound"] == 60
    assert (await clean(web))["last"]["records_gone"] == 0


async def test_a_topic_is_cleaned_by_itself_once_enough_was_written(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(cleaner_backoff_ms=10)
    await create(web, **{"min.cleanable.dirty.ratio": 0.5})
    await write_much(web)
    async with asyncio.timeout(20):
        while (found := await settled(web))["last"] is None or len(await read(web)) > 20:
            pass
    assert found["last"]["reason"] == "dirty"
    assert {key for _, key, _ in await read(web)} == {"a", "b", "k0", "k1", "k2"}


async def test_more_keys_than_there_is_room_for_are_cleaned_in_several_passes(
    serve: Callable[..., Awaitable[Web]]
) -> None:
    web = await serve(cleaner_buffer_bytes=1024)  # 38 keys
    await create(web)
    for _ in range(2):
        for first in range(0, 90, 5):
            await produce(web, *((f"k{number}", FILLER) for number in range(first, first + 5)))
    before = await read(web)
    status, _ = await web.ask("POST", f"{USERS}/clean", {})
    assert status == 202
    async with asyncio.timeout(20):
        while (found := await settled(web))["cleaned_to"] != 180:
            pass
    _, node = await web.ask("GET", "/v1/cleaner")
    assert node["passes"] > 2
    assert all(one["keys"] <= 38 for one in node["ended"])
    assert [one["failure"] for one in node["ended"]] == [""] * len(node["ended"])
    assert found["state"] == "clean"
    assert await read(web) == last_of_each(before)


async def test_a_tombstone_goes_after_its_time_and_its_key_does_not_come_back(web: Web) -> None:
    await create(web, **{"delete.retention.ms": 60_000})
    await write_much(web)
    await produce(web, ("a", None))
    await write_much_of_b(web)
    first = await clean(web)
    assert ("a", None) in [(key, value) for _, key, value in await read(web)]
    assert first["tombstones_due"] == web.node.clock() + 60_000
    assert (await clean(web))["last"]["tombstones_gone"] == 0
    web.node.clock.now_ms += 60_000
    await clean(web)
    _, node = await web.ask("GET", "/v1/cleaner")
    assert sum(one["tombstones_gone"] for one in node["ended"]) == 1, "in this pass, or in one that began by itself"
    assert "a" not in {key for _, key, _ in await read(web)}
    assert (await clean(web))["tombstones_due"] is None


async def write_much_of_b(web: Web) -> None:
    for _ in range(5):
        await produce(web, ("b", FILLER))


async def test_a_dry_run_changes_nothing_and_says_what_there_is(web: Web) -> None:
    await create(web)
    await write_much(web)
    before = await read(web)
    status, asked = await web.ask("POST", f"{USERS}/clean", {"dry_run": True})
    (one,) = asked["partitions"]
    assert (status, asked["dry_run"], one["is_cleaned"], one["dirty_ratio"]) == (202, True, True, 1)
    assert one["bodies"] > one["windows"] == 1
    assert (await settled(web))["last"] is None
    assert await read(web) == before


async def test_what_cannot_be_cleaned_is_refused_or_says_why(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve()
    await web.ask("POST", "/v1/topics", {"name": "orders"})
    status, code, text = await web.refusal("POST", "/v1/topics/orders/clean", {})
    assert (status, code) == (400, "INVALID_REQUEST")
    assert "is not compacted: its cleanup.policy" in text
    status, code, _ = await web.refusal("POST", f"{USERS}/clean", {})
    assert (status, code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    await create(web)
    status, code, _ = await web.refusal("POST", f"{USERS}/clean", {"partitions": [7]})
    assert (status, code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    _, asked = await web.ask("POST", f"{USERS}/clean", {})
    assert [(one["is_cleaned"], one["text"]) for one in asked["partitions"]] == [(False, "it holds no records")]
    off = await serve(cleaner_enable=False)
    await create(off)
    status, code, text = await off.refusal("POST", f"{USERS}/clean", {})
    assert (status, code) == (400, "INVALID_REQUEST")
    assert "log.cleaner.enable is false" in text
    assert (await settled(off))["state"] == "off"


async def test_what_was_written_lately_stays(web: Web) -> None:
    await create(web, **{"min.compaction.lag.ms": 3_600_000})
    await write_much(web)
    before = await read(web)
    found = await clean(web)
    assert (found["state"], found["reason"], found["last"]) == ("waiting", "young", None)
    assert found["next"] > web.node.clock()
    assert await read(web) == before


async def test_a_topic_that_was_compacted_is_so_no_more_and_again(web: Web) -> None:
    await create(web)
    await write_much(web)
    await clean(web)
    await configure(web, **{"cleanup.policy": "delete"})
    await produce(web, ("a", "later"), ("a", "last"))
    _, found = await web.ask("GET", f"{USERS}/partitions/0")
    assert found["cleaning"] is None
    await configure(web, **{"cleanup.policy": "compact"})
    before = await read(web)
    assert (await clean(web))["cleaned_to"] == 62
    assert await read(web) == last_of_each(before)


async def test_how_far_a_log_is_cleaned_is_known_after_a_restart_of_its_tablet(web: Web) -> None:
    await create(web)
    await write_much(web)
    before = await clean(web)
    _, found = await web.ask("GET", f"{USERS}/partitions/0")
    status, _ = await web.ask("POST", f"/v1/tablets/{found['tablet']}/restart", {})
    assert status == 200
    after = await settled(web)
    assert (after["cleaned_to"], after["cleaned"]) == (before["cleaned_to"], before["cleaned"])
    assert after["dirty_bytes"] == 0


async def test_a_partition_that_is_cleaned_is_shown_while_all_of_it_is_too_young(web: Web) -> None:
    await create(web)
    await write_much(web)
    await clean(web)
    await configure(web, **{"min.compaction.lag.ms": "3600000"})
    found = await settled(web)
    assert (found["state"], found["reason"]) == ("clean", "clean")
    _, asked = await web.ask("POST", f"{USERS}/clean", {})
    assert "younger than min.compaction.lag.ms" in asked["partitions"][0]["text"]
    await write_much(web)
    found = await settled(web)
    assert (found["state"], found["reason"]) == ("waiting", "young")
    assert found["next"] == web.node.clock() + 3_600_000


async def test_passes_of_a_topic_that_was_deleted_are_not_those_of_a_later_one_of_its_name(web: Web) -> None:
    await create(web)
    await write_much(web)
    assert (await clean(web))["last"] is not None
    status, _ = await web.ask("DELETE", USERS)
    assert status == 204
    await create(web)
    found = await settled(web)
    assert (found["last"], found["cleaned_to"], found["cleaned"]) == (None, None, None)


async def test_a_partition_whose_writes_wait_keeps_no_other_one_from_being_cleaned(web: Web) -> None:
    await create(web)
    await write_much(web)
    texts = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 1}
    await web.ask("POST", "/v1/topics", {"name": "held", "config": texts})
    await web.ask("POST", "/v1/topics/held/records", {"records": [{"key": "a", "value": "1"}]})
    held = web.node.server.node.cell.current.topics.partition("held", 0)
    assert held is not None
    held.writer.keep_out()
    status, _ = await web.ask("POST", "/v1/topics/held/clean", {})
    assert status == 202
    assert (await clean(web))["last"]["failure"] == ""


async def test_a_cleaning_that_was_asked_for_survives_a_restart_of_its_tablet(
    serve: Callable[..., Awaitable[Web]]
) -> None:
    web = await serve(cleaner_io_rate=20_000.0)
    await create(web)
    await write_much(web)
    before = await read(web)
    await web.ask("POST", f"{USERS}/clean", {})
    _, found = await web.ask("GET", f"{USERS}/partitions/0")
    async with asyncio.timeout(20):
        while (await web.ask("GET", f"{USERS}/partitions/0"))[1]["cleaning"]["running"] is None:
            pass
    status, _ = await web.ask("POST", f"/v1/tablets/{found['tablet']}/restart", {})
    assert status == 200
    done = await settled(web)
    assert (done["state"], done["last"]["failure"]) == ("clean", "")
    assert await read(web) == last_of_each(before)
    _, node = await web.ask("GET", "/v1/cleaner")
    assert [one["failure"] != "" for one in node["ended"]] == [False, True], "the last one first"


async def test_records_leave_the_head_after_their_time_and_are_cleaned(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(cleaner_backoff_ms=10)
    await create(web, **{"pq.low.watermark.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0, "segment.ms": 60_000})
    await write_much(web)
    before = await read(web)
    assert (await settled(web))["bodies"] == 0
    web.node.clock.now_ms += 60_000
    async with asyncio.timeout(20):
        while (await settled(web))["last"] is None:
            pass
    assert await read(web) == last_of_each(before)


async def test_cleaning_keeps_to_its_rate(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(cleaner_io_rate=100_000.0)
    await create(web)
    await write_much(web)
    begun_s = asyncio.get_running_loop().time()
    done = (await clean(web))["last"]
    moved = done["bytes_read"] + done["bytes_written"]
    assert asyncio.get_running_loop().time() - begun_s > (moved - done["bytes_written"]) / 100_000 / 2 > 0.05


def test_a_pass_is_measured() -> None:
    record = PassRecord("users", 0, "dirty", 1000, 3, 900, 500, 40, bytes_read=2000)
    assert record.document(3000)["bytes_read_per_s"] == 1000
    record.ended_ms = 2000
    assert record.document(9000)["bytes_read_per_s"] == 2000


async def test_the_cleaning_of_all_partitions_is_listed_in_pages(web: Web) -> None:
    status, _ = await web.ask("POST", "/v1/topics", {"name": "users", "partitions": 3, "config": COMPACT})
    assert status == 201
    _, found = await web.ask("GET", f"{USERS}/cleaning?limit=2")
    assert [(one["partition"], one["state"]) for one in found["partitions"]] == [(0, "clean"), (1, "clean")]
    _, rest = await web.ask("GET", f"{USERS}/cleaning?after={found['next']}")
    assert [one["partition"] for one in rest["partitions"]] == [2]
    assert (found["is_compacted"], rest["next"]) == (True, None)
    _, inside = await web.ask("GET", f"{USERS}/partitions/2")
    assert rest["partitions"] == [{"partition": 2, **inside["cleaning"]}]
    await configure(web, **{"cleanup.policy": "delete"})
    _, found = await web.ask("GET", f"{USERS}/cleaning")
    assert (found["is_compacted"], found["partitions"], found["next"]) == (False, [], None)
    status, code, _ = await web.refusal("GET", "/v1/topics/none/cleaning")
    assert (status, code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_aborted_records_go_then_what_is_known_of_them_then_their_markers(web: Web) -> None:
    await create(web, **{"delete.retention.ms": 1000})
    topic = web.node.server.node.cell.current.topics.get("users")
    assert topic is not None
    server = topic.partitions[0]

    async def uncommitted() -> set[str]:
        _, answer = await web.ask("GET", f"{USERS}/records?limit=1000&isolation=read_uncommitted")
        return {one["value"] for one in answer["records"] if one["key"] == "a"}

    async def clean_all() -> None:
        await produce(web, ("b", "1"))
        await server.flush()
        done = await clean(web)
        assert done["last"]["failure"] == ""

    await produce(web, ("a", "first"))
    record = encode_batch(
        [Record(0, 5, b"a", b"aborted")], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
    )
    await server.write(memoryview(record), read_header(record))
    marker_offset = await server.end_transaction(7, 0, 0, is_commit=False)
    assert await uncommitted() == {"first", "aborted"}
    await clean_all()
    assert await uncommitted() == {"first"}
    assert server.state.transactions.aborted is not None
    await clean_all()
    assert server.state.transactions.aborted is None
    assert marker_offset in await offsets_of(server)
    web.node.clock.now_ms += 1000
    await clean_all()
    assert marker_offset not in await offsets_of(server)
    assert [value for _, key, value in await read(web) if key == "a"] == ["first"]


async def offsets_of(server: PartitionServer) -> list[int]:
    """Offsets of all records, markers too."""
    found = server.read(ReadQuery(0, server.end_offset, 1 << 20))
    data = b"".join((found if isinstance(found, Batches) else await found).in_memory())
    placed = [data[at : at + header.size_bytes] for at, header in batches(data)]
    return [record.offset for batch in placed for record in decode_records(batch)]
