"""Fills a directory of an earlier commit, over the doors alone, and reads it back."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from pqbroker.client import Client
from pqbroker.testing import Broker, BrokerRefusedError

Ask = Callable[..., Any]
"""Method, path and body of a request over HTTP; the document of its answer."""
SETTINGS = {
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "2147483647",
    "producer.id.expiration.ms": "2147483647",
    "pqbroker.test.door": "true",
    "pqbroker.ballast.bytes": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Nothing may be over its time when the directory is opened, whenever that is. Access rules bind the users alone."""
PASSWORDS = {"alice": "Secret-1", "root": "Secret-2"}
RULES = (
    {"kind": "topic", "name": "plain", "principal": "User:alice", "operation": "read"},
    {
        "kind": "topic", "name": "arch", "pattern": "prefixed", "principal": "User:*", "operation": "write",
        "permission": "deny",
    },
)
QUOTA = {"entity": {"user": "alice", "client_id": None}, "quotas": {"producer_byte_rate": 1048576.0}}
TABLE = "shop.orders"
SCHEMA = [
    {"name": "id", "type": "int64", "required": True},
    {"name": "note", "type": "utf8"},
    {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
CLEANED = {
    "cleanup.policy": "compact", "pq.low.watermark.bytes": "2048", "min.cleanable.dirty.ratio": "1",
    "delete.retention.ms": str(1 << 50),
}
"""A topic that is cleaned on command alone."""
FIRST_MS = 1_700_000_000_000
LARGE_BYTES = 9 << 20
"""Above 8 MiB: a batch in parts."""
_LONGEST_SHOWN = 200


def fill_first(broker: Broker, ask: Ask) -> None:
    """Make all there is; what is written here gets into index files, since the broker is stopped behind it."""
    small = {"pq.low.watermark.bytes": "4096", "pq.partitions.per.tablet": "2"}
    ask("POST", "/v1/topics", {"name": "plain", "partitions": 3, "config": small})
    ask("POST", "/v1/topics", {"name": "latest", "config": {"cleanup.policy": "compact"}})
    ask("POST", "/v1/topics", {"name": "large", "config": {"max.message.bytes": "20971520"}})
    ask("POST", "/v1/topics", {"name": "gone"})
    ask("POST", "/v1/topics", {"name": "cleaned", "config": CLEANED})
    asyncio.run(_produce(broker.kafka, 0))
    _clean(ask)
    ask("DELETE", "/v1/topics/gone")
    ask("POST", "/v1/bundles", {"name": "fast"})
    ask("POST", "/v1/cells", {"bundle": "fast"})
    _if_known(ask, "PUT", "/v1/tree//shop/@tablet_cell_bundle", "fast")
    attributes = {"max_data_ttl": 86_400_000}
    body = {"path": "//shop/orders", "schema": SCHEMA, "tablet_count": 4, "attributes": attributes, "bundle": "fast"}
    ask("POST", "/v1/tables", body)
    ask("POST", "/v1/tables", {"path": "//archive", "schema": SCHEMA[:2]})
    for tablet in range(4):
        insert(ask, TABLE, tablet, sequence=1)
    insert(ask, "archive", 0, sequence=1)
    ask("PATCH", "/v1/settings", {"settings": {"message.max.bytes": 2_000_000}, "every_node": True})
    for name, password in PASSWORDS.items():
        _if_known(ask, "PUT", f"/v1/users/{name}", {"password": password, "super": name == "root"})


def fill_second(broker: Broker, ask: Ask) -> None:
    """Write more, which only logs have, since the broker is killed behind it."""
    asyncio.run(_produce(broker.kafka, 1))
    asyncio.run(_commit(broker.kafka))
    _if_known(ask, "POST", "/v1/acls", {"acls": list(RULES)})
    _if_known(ask, "PATCH", "/v1/quotas", QUOTA)
    _if_known(ask, "POST", "/v1/tokens", {"user": "alice", "note": "kept"})
    for tablet in range(4):
        insert(ask, TABLE, tablet, sequence=2)
    orders = f"/v1/tables/{TABLE}"
    ask("POST", f"{orders}/trim", {"tablet_index": 0, "trimmed_row_count": 3})
    ask("POST", f"{orders}/freeze", {"first_tablet_index": 1, "last_tablet_index": 1})
    ask("POST", f"{orders}/unmount", {"first_tablet_index": 2, "last_tablet_index": 2})
    ask("PATCH", orders, {"attributes": {"max_data_versions": 2}})
    for verb in ("unmount", "mount"):
        ask("POST", f"{orders}/{verb}", {"first_tablet_index": 3, "last_tablet_index": 3})
    ask("POST", "/v1/tables/archive/unmount", {})
    ask("POST", "/v1/tables/archive/alter", {"dynamic": False})
    ask("PATCH", "/v1/topics/plain/configs", {"configs": {"retention.bytes": 1 << 40}})
    session = {"name": "s", "generation": 3, "step": 4}
    ask("POST", "/v1/groups/native/commits", {"topic": "plain", "partition": 1, "offset": 2, "session": session})
    ask("POST", "/v1/topics/plain/partitions", {"count": 5})


def read_back(broker: Broker, ask: Ask) -> dict[str, Any]:
    """Read everything that is to be the same in each version, as values of JSON; a commit may lack some of it."""
    with Client(broker.http) as client:
        static_rows = client.sql("SELECT * FROM archive ORDER BY id").rows()
    topics = {one["name"]: one["id"] for one in ask("GET", "/v1/topics?limit=1000")["topics"]}
    tables = {one["name"]: ask("GET", f"/v1/tables/{one['name']}") for one in ask("GET", "/v1/tables")["tables"]}
    groups = [ask("GET", f"/v1/groups/{one['name']}?limit=1000") for one in ask("GET", "/v1/groups")["groups"]]
    changed = ask("GET", "/v1/settings?changed=true&limit=1000")["settings"]
    found = {
        "topics": {name: {"id": topic_id} | _topic(ask, name) for name, topic_id in topics.items()},
        "tables": {name: _chosen(table, _OF_TABLE) for name, table in tables.items()},
        "tablets": {name: list(_tablets(ask, name)) for name in tables},
        "static rows": static_rows,
        "groups": {
            group["name"]: [_chosen(one, _OF_OFFSET) for one in group["partitions"]] for group in groups
        },
        "cells": [_chosen(one, ("id", "bundle", "health")) for one in ask("GET", "/v1/cells")["cells"]],
        "bundles": [_chosen(one, ("name", "cells")) for one in ask("GET", "/v1/bundles")["bundles"]],
        "settings": {one["name"]: one["value"] for one in changed if one["source"].startswith("DYNAMIC")},
    }  # fmt: skip
    bundle = _if_known(ask, "GET", "/v1/tree//shop/@tablet_cell_bundle")
    found |= {} if bundle is None else {"bundle of //shop": bundle}
    return found | _access(ask)


def _access(ask: Ask) -> dict[str, Any]:
    """Users, rules, quotas and tokens, of a commit that has them."""
    found = {name: _if_known(ask, "GET", f"/v1/{name}?limit=1000") for name in ("users", "acls", "quotas", "tokens")}
    return {name: answer[name] for name, answer in found.items() if answer is not None}


def holds(expected: Any, found: Any) -> bool:
    """Return True if what an earlier commit read is found, beside what it did not know yet."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(name in found and holds(value, found[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return all(map(holds, expected, found))
    return bool(expected == found)


def insert(ask: Ask, table: str, tablet: int, *, sequence: int) -> Any:
    """Insert a batch of the tablet's own session."""
    rows = [{"id": 100 * sequence + number, "note": f"row {number}" * number} for number in range(4)]
    placed = [row | {"$tablet_index": tablet} for row in rows]
    body = {"rows": placed, "session": f"loader-{tablet}", "sequence": sequence}
    return ask("POST", f"/v1/tables/{quote(table)}/rows", body)


_OF_TABLE = ("path", "dynamic", "tablet_count", "bundle", "schema", "formats", "attributes", "mounted_attributes")
_OF_TABLET = (
    "index", "tablet_id", "state", "trimmed_row_count", "total_row_count", "cell_id", "home_cell_id",
    "mounted_attributes",
)  # fmt: skip
_OF_OFFSET = ("topic", "partition", "offset", "metadata", "commit_timestamp")


def _if_known(ask: Ask, method: str, path: str, body: Any = None) -> Any:
    """The answer; None of a commit that has no such thing yet."""
    try:
        return ask(method, path, body)
    except BrokerRefusedError:
        return None


def _topic(ask: Ask, name: str) -> dict[str, Any]:
    configs = ask("GET", f"/v1/topics/{name}/configs")["configs"]
    partitions = ask("GET", f"/v1/topics/{name}?limit=1000")["partitions"]
    return {
        "configs": {one["name"]: one["value"] for one in configs if one["source"] == "DYNAMIC_TOPIC"},
        "partitions": [_chosen(one, ("start_offset", "end_offset", "tablet")) for one in partitions],
        "cleaned_to": [_cleaned_to(ask, name, one["partition"]) for one in partitions],
        "records": [] if name == TABLE else [list(_records(ask, name, one["partition"])) for one in partitions],
    }


def _cleaned_to(ask: Ask, topic: str, partition: int) -> Any:
    shown = ask("GET", f"/v1/topics/{topic}/partitions/{partition}").get("cleaning")
    return None if shown is None else shown["cleaned_to"]


def _records(ask: Ask, topic: str, partition: int) -> Iterator[list[Any]]:
    offset, end_offset = 0, 1
    while offset < end_offset:
        page = ask("GET", f"/v1/topics/{topic}/records?partition={partition}&offset={offset}&limit=1000")
        for one in page["records"]:
            yield [one["offset"], one["timestamp"], _short(one["key"]), _short(one["value"]), one["headers"]]
        offset, end_offset = page["next_offset"], page["end_offset"]


def _tablets(ask: Ask, name: str) -> Iterator[dict[str, Any]]:
    for tablet in ask("GET", f"/v1/tables/{name}/tablets")["tablets"]:
        path = f"/v1/tables/{name}/rows?tablet_index={tablet['index']}&limit=1000"
        rows = [] if tablet["state"] == "unmounted" else ask("GET", path)["rows"]
        yield _chosen(tablet, _OF_TABLET) | {"rows": rows}


def _chosen(document: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: document[name] for name in names if name in document}


def _clean(ask: Ask) -> None:
    """Have a topic cleaned, by a commit that can."""
    if _if_known(ask, "POST", "/v1/topics/cleaned/clean", {}) is not None:
        while ask("GET", "/v1/topics/cleaned/partitions/0")["cleaning"]["state"] != "clean":
            pass


def _short(content: Any) -> Any:
    text = json.dumps(content)
    return content if len(text) <= _LONGEST_SHOWN else hashlib.sha256(text.encode()).hexdigest()


async def _produce(address: str, time: int) -> None:
    """Batches of each codec by a producer of its own: empty and null contents, headers, and last one of 9 MiB."""
    for codec in CODECS:
        producer = AIOKafkaProducer(bootstrap_servers=address, compression_type=codec, enable_idempotence=True)
        async with producer:
            headers = [("codec", (codec or "none").encode()), ("", b"")]
            for partition in range(3):
                for number in range(4):
                    await producer.send("plain", _value(number), b"%d" % number, partition, FIRST_MS + number, headers)
            await producer.flush()
            for number in range(8):
                value = None if number == 3 else b"%d" % time * 400
                await producer.send_and_wait("cleaned", value, b"%d" % (number % 5), 0, FIRST_MS)
            await producer.send_and_wait("latest", None if codec == "lz4" else b"%d" % time, (codec or "").encode(), 0)
    async with AIOKafkaProducer(bootstrap_servers=address, max_request_size=2 * LARGE_BYTES) as producer:
        await producer.send_and_wait("large", b"%d" % time * LARGE_BYTES, None, 0, FIRST_MS)
        if not time:
            await producer.send_and_wait("gone", b"gone")


def _value(number: int) -> bytes | None:
    return (None, b"", b"\0" * 700, b"value %d " % number * 90)[number]


async def _commit(address: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id="readers", enable_auto_commit=False)
    await consumer.start()
    places = {TopicPartition("plain", index): OffsetAndMetadata(index + 1, f"at {index}") for index in range(3)}
    consumer.assign(list(places))
    await consumer.commit(places)
    await consumer.stop()
