import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafka.partitioner.default import murmur2 as kafka_murmur2

from pqbroker.broker.web.resources.partitioner import murmur2
from pqbroker.protocol.records import Record, encode_batch
from tests.broker.conftest import produce_request
from tests.broker.web.conftest import Web
from tests.support.cpu_time import no_collector

PATH = "/v1/topics/t/records"
PLACE = {"topic": "t", "partition": 0}


async def write(web: Web, *records: Record, partition: int = 0, **options: Any) -> None:
    client = await web.node.connect()
    answer = await client.ask(produce_request("t", encode_batch(records, **options), partition), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def look(web: Web, query: str = "") -> Any:
    status, document = await web.ask("GET", PATH + query)
    assert status == 200, document
    return document


def values(document: Any) -> list[Any]:
    return [record["value"] for record in document["records"]]


async def filled(web: Web, count: int = 10) -> Web:
    """A topic with records 0, 1, ... of keys k0, k1, k2, a millisecond apart, three to a batch."""
    await web.node.create_topic("t", 2)
    records = [Record(0, web.node.clock() + n, b"k%d" % (n % 3), b"%d" % n) for n in range(count)]
    for first in range(0, count, 3):
        await write(web, *records[first : first + 3], codec=first // 3 % 2)
    return web


async def test_records_are_shown_as_text_where_they_are(web: Web) -> None:
    await web.node.create_topic("t")
    headers = (("h", b"\xff"), ("h", None), ("g", "ü".encode()))
    await write(web, Record(0, 5, b"key", "wört".encode(), headers), Record(0, 6, None, b"\x00\xfe"), Record(0, 7))
    document = await look(web)
    assert document["records"] == [
        {
            **PLACE, "offset": 0, "timestamp": 5, "key": "key", "value": "wört",
            "headers": [
                {"key": "h", "value": {"base64": "/w=="}}, {"key": "h", "value": None}, {"key": "g", "value": "ü"},
            ],
        },
        {**PLACE, "offset": 1, "timestamp": 6, "key": None, "value": {"base64": "AP4="}, "headers": []},
        {**PLACE, "offset": 2, "timestamp": 7, "key": None, "value": None, "headers": []},
    ]  # fmt: skip
    assert {name: document[name] for name in ("partition", "start_offset", "end_offset", "next_offset")} == {
        "partition": 0, "start_offset": 0, "end_offset": 3, "next_offset": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "found", "next_offset"),
    [
        ("", range(10), 10),
        ("?offset=4", range(4, 10), 10),
        ("?offset=4&limit=3", range(4, 7), 7),
        ("?offset=3&limit=3", range(3, 6), 6),
        ("?offset=-2", range(8, 10), 10),
        ("?offset=-99&limit=1", range(1), 1),
        ("?offset=10", range(0), 10),
        ("?time=1700000000007", range(7, 10), 10),
        ("?time=1800000000000", range(0), 10),
        ("?from=beginning", range(10), 10),
        ("?from=4", range(4, 10), 10),
        ("?from=end", range(0), 10),
        ("?from=2023-11-14T22:13:20.007", range(7, 10), 10),
        ("?from=2023-11-14T23:13:20.007%2B01:00", range(7, 10), 10),
        ("?from=1s&limit=2", range(2), 2),
        ("?from=-1s&limit=2", range(2), 2),
        ("?from=0ms", range(10), 10),
        ("?key=k1", (1, 4, 7), 10),
        ("?key=k1&limit=2", (1, 4), 5),
        ("?key=k1&offset=5", (7,), 10),
        ("?key=none", (), 10),
        ("?partition=1", (), 0),
    ],
)
async def test_a_look_by_offset_time_and_key(web: Web, query: str, found: Any, next_offset: int) -> None:
    document = await look(await filled(web), query)
    assert (values(document), document["next_offset"]) == ([str(number) for number in found], next_offset)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?offset=11", 400, "OFFSET_OUT_OF_RANGE"),
        ("?partition=2", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("?partition=-1", 400, "INVALID_REQUEST"),
        ("?offset=1&time=1", 400, "INVALID_REQUEST"),
        ("?offset=x", 400, "INVALID_REQUEST"),
        ("?from=1&offset=1", 400, "INVALID_REQUEST"),
        ("?from=yesterday", 400, "INVALID_REQUEST"),
        ("?from=11", 400, "OFFSET_OUT_OF_RANGE"),
        ("?time=-1", 400, "INVALID_REQUEST"),
        ("?limit=0", 400, "INVALID_REQUEST"),
        ("?offset=99999999999999999999", 400, "OFFSET_OUT_OF_RANGE"),
    ],
)
async def test_a_look_that_cannot_be_is_refused(web: Web, query: str, status: int, code: str) -> None:
    assert (await (await filled(web)).refusal("GET", PATH + query))[:2] == (status, code)


async def test_an_answer_ends_before_it_is_too_large_and_says_where_to_go_on(
    serve: Callable[..., Awaitable[Web]],
) -> None:
    web = await serve(http_answer_bytes_max=1024)
    await web.node.create_topic("t")
    await write(web, *(Record(0, 0, None, b"x" * 400) for _ in range(3)), Record(0, 0, None, b"y" * 5000))
    sizes, offset = [], 0
    while offset < 4:
        document = await look(web, f"?offset={offset}")
        sizes.append([len(value) for value in values(document)])
        offset = document["next_offset"]
    assert sizes == [[400, 400], [400], [5000]]


async def test_a_search_ends_after_so_many_bytes_and_says_where_to_go_on(
    serve: Callable[..., Awaitable[Web]],
) -> None:
    web = await serve(http_look_bytes_max=2000)
    await web.node.create_topic("t")
    for number in range(6):
        await write(web, Record(0, 0, b"%d" % number, b"x" * 900))
    document = await look(web, "?key=5")
    assert (values(document), document["next_offset"]) == ([], 3)
    document = await look(web, "?key=5&offset=3")
    assert (len(values(document)), document["next_offset"]) == (1, 6)


async def test_a_batch_that_grows_too_large_is_refused_not_unpacked(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(http_look_bytes_max=2000)
    await web.node.create_topic("t")
    await write(web, Record(0, 0, None, bytes(100_000)), codec=1)
    status, code, message = await web.refusal("GET", PATH)
    assert (status, code) == (400, "INVALID_RECORD")
    assert "2000" in message


async def test_what_is_shown_can_be_produced_as_it_is(web: Web) -> None:
    await web.node.create_topic("t")
    await write(web, Record(0, 5, b"\xff", "ü\0".encode(), (("h", None), ("h", b"\xfe"))), Record(0, 6, b"", None))
    shown = (await look(web))["records"]
    sent = [{name: value for name, value in record.items() if name != "offset"} for record in shown]
    status, answer = await web.ask("POST", PATH, {"records": sent})
    offsets = [{"partition": 0, "offset": 2}, {"partition": 0, "offset": 3}]
    assert (status, answer) == (201, {"cell": "0", "offsets": offsets})
    again = (await look(web, "?offset=2"))["records"]
    assert [{**record, "offset": record["offset"] - 2} for record in again] == shown


async def test_records_go_to_the_partition_named_or_that_of_their_key(web: Web) -> None:
    await web.node.create_topic("t", 7)
    records = [{"key": f"key {number}", "value": "v"} for number in range(20)]
    status, answer = await web.ask("POST", PATH, {"records": [*records, {"value": "v", "partition": 3}]})
    assert status == 201
    partitions = [item["partition"] for item in answer["offsets"]]
    assert partitions[:-1] == [(kafka_murmur2(b"key %d" % number) & 0x7FFF_FFFF) % 7 for number in range(20)]
    assert partitions[-1] == 3
    for partition in set(partitions):
        document = await look(web, f"?partition={partition}")
        assert document["end_offset"] == partitions.count(partition)


async def test_records_without_key_and_partition_stay_together(web: Web) -> None:
    await web.node.create_topic("t", 5)
    _, answer = await web.ask("POST", PATH, {"records": [{"value": str(number)} for number in range(9)]})
    assert [item["offset"] for item in answer["offsets"]] == list(range(9))
    assert len({item["partition"] for item in answer["offsets"]}) == 1


@pytest.mark.parametrize(
    ("body", "status", "code", "word"),
    [
        ({"records": []}, 400, "INVALID_REQUEST", "empty"),
        ({"records": [{}]}, 400, "INVALID_BODY", "body.records[0] has no field 'value'"),
        ({"records": [{"value": 1}]}, 400, "INVALID_BODY", "body.records[0].value is integer"),
        ({"records": [{"value": {"base64": "?"}}]}, 400, "INVALID_REQUEST", "body.records[0].value.base64"),
        ({"records": [{"value": {"base64": "ü"}}]}, 400, "INVALID_REQUEST", "body.records[0].value.base64"),
        ({"records": [{"value": "\ud800"}]}, 400, "INVALID_REQUEST", "base64"),
        ({"records": [{"value": "", "headers": [{"key": "\ud800", "value": ""}]}]}, 400, "INVALID_REQUEST", "key"),
        ({"records": [{"value": "a"}, {"value": "", "partition": 1}]}, 404, "UNKNOWN_TOPIC_OR_PARTITION", "partition"),
        ({"records": [{"value": "", "timestamp": 1 << 63}]}, 400, "INVALID_BODY", "timestamp"),
        ({"records": [{"value": "", "timestamp": (1 << 63) - 1}]}, 400, "INVALID_TIMESTAMP", "ahead"),
        ({"records": [{"value": "x" * 1_100_000}]}, 413, "MESSAGE_TOO_LARGE", "1048588"),
    ],
)
async def test_records_that_cannot_be_are_refused_whole(
    web: Web, body: Any, status: int, code: str, word: str
) -> None:
    await web.node.create_topic("t")
    refused = await web.refusal("POST", PATH, body)
    assert refused[:2] == (status, code)
    assert word in refused[2]
    assert (await look(web))["end_offset"] == 0


async def test_a_store_that_refuses_is_told_with_what_was_written(web: Web) -> None:
    await web.node.create_topic("t", 2, pq_max_count_in_partition="1")
    await web.node.produce("t", b"full", partition=1)
    records = [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}]
    status, code, message = await web.refusal("POST", PATH, {"records": records})
    assert (status, code) == (409, "POLICY_VIOLATION")
    assert message.startswith("partition 1: ")
    assert message.endswith("written at partitions 0")


@pytest.mark.parametrize("size", range(12))
def test_keys_hash_as_kafkas_do(size: int) -> None:
    for start in (0, 120, 250):
        key = bytes((start + number * 37) % 256 for number in range(size))
        assert murmur2(key) == kafka_murmur2(key) & 0xFFFF_FFFF


async def test_over_the_quota_the_answer_comes_later(web: Web) -> None:
    await web.node.create_topic("slow", pq_write_speed_bytes="1000")
    loop = asyncio.get_running_loop()
    path = "/v1/topics/slow/records"
    for size, least_s in ((500, 0.0), (700, 0.2)):
        asked = loop.time()
        status, _ = await web.ask("POST", path, {"records": [{"value": "v" * size}]})
        assert status == 201
        assert loop.time() - asked >= least_s


async def test_over_the_quota_on_records_the_answer_comes_later(web: Web) -> None:
    await web.node.create_topic("slow", pq_write_speed_messages="10")
    loop = asyncio.get_running_loop()
    asked = loop.time()
    await web.ask("POST", "/v1/topics/slow/records", {"records": [{"value": "v"}] * 12})
    assert loop.time() - asked >= 0.2


async def test_a_body_of_many_records_does_not_hold_the_loop(web: Web) -> None:
    await web.node.create_topic("many", max_message_bytes="10000000")
    body = json.dumps({"records": [{"key": f"{number}", "value": None} for number in range(40_000)]}).encode()
    turns: list[float] = []
    is_over = False

    async def watch() -> None:
        while not is_over:
            begun_s = time.thread_time()
            await asyncio.sleep(0)
            turns.append(time.thread_time() - begun_s)

    with no_collector():
        watching = asyncio.create_task(watch())
        status, document = await web.ask("POST", "/v1/topics/many/records", body)
        is_over = True
        await watching
    assert status == 201
    assert document["offsets"] == [{"partition": 0, "offset": offset} for offset in range(40_000)]
    assert max(turns) < 0.15  # of which the client in this loop has its part
