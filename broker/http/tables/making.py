"""Creating, listing, describing, altering, trimming and deleting tables."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pqbroker.broker.apis.access import AclOperation, check_creation, every_topic
from pqbroker.broker.apis.topic_schemas import SCHEMA, schema_of
from pqbroker.broker.apis.topics import check_new_topic, create_topic, delete_topic
from pqbroker.broker.configs.changes import Resource
from pqbroker.broker.configs.changes import alter as change_configs
from pqbroker.broker.configs.directories import bundle_of
from pqbroker.broker.configs.operations import Change, Operation
from pqbroker.broker.http.problems import bad_request
from pqbroker.broker.http.resources.configs import config_texts
from pqbroker.broker.http.routes import Call
from pqbroker.broker.http.tables.conversion import check_unmounted, convert
from pqbroker.broker.http.tables.finding import check_tablet, facts, find_table, find_typed, shown, state_of
from pqbroker.conf.table_attributes import in_force, retention_ms
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme_state import TableRecord, TopicRecord
from pqbroker.tables.attributes import check_attributes
from pqbroker.tables.mount import MountState
from pqbroker.tables.paths import topic_name
from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import Schema, check_alteration, check_names, read_schema

_CONFIG = {"pq.partitions.per.tablet": "1", "retention.bytes": "-1", "value.invalid": "refuse"}
"""Of every table's topic, besides retention.ms: tablets are mounted one by one, rows go by attributes (E.6), what is no
row is refused."""


_OWN_CONFIG = {
    SCHEMA: "Give the columns as schema.",
    "pq.bundle": "Give the bundle as bundle.",
    "pq.partitions.per.tablet": "Leave it out: each partition of a table is a tablet.",
    "retention.ms": "Give max_data_ttl among the attributes.",
}
"""Configs that are not given as such, with what is given instead."""

_OF_TABLETS = ("tablet_count", "trimmed_row_counts", "mount")


async def create(call: Call) -> Any:
    body = call.body
    name = topic_name(body["path"])
    check_creation(call, name)
    given = _given_config(body)
    schema = read_schema(body["schema"], call.node.settings.table_columns_max, given)
    check_names(schema)
    attributes = body.get("attributes", {})
    check_attributes(attributes)
    inherited = bundle_of(call.owner.current.scheme, name)
    bundle, known = body.get("bundle") or inherited or DEFAULT_BUNDLE, call.owner.current.hive.bundles
    if bundle not in known:
        text = f"bundle is {bundle[:100]!r}, and there is no such bundle"
        raise TableError("NO_BUNDLE", text, f"Give one of {', '.join(sorted(known))}.")
    first_rows, is_static = _first_rows(body), not body.get("dynamic", True)
    state = MountState.MOUNTED if body.get("mount", True) else MountState.UNMOUNTED
    if is_static:
        _check_static(body, attributes)
        state = MountState.FROZEN
    count = body.get("tablet_count", 1)
    mounted = MountedAttributes.collect([attributes] * count)
    states_at_first = (state.value,) * count
    table = TableRecord(
        schema.documents(), attributes, mounted, states_at_first, tuple(first_rows), is_static=is_static
    )
    in_bundle = {} if bundle == DEFAULT_BUNDLE and inherited is None else {"pq.bundle": bundle}
    age = {"retention.ms": str(retention_ms(attributes))}
    config = {**_CONFIG, **given, **schema.format_configs, **in_bundle, **age}
    check_new_topic(call.node, name, count, config)
    return shown(await create_topic(call.node, name, count, config, table), table)


async def list_tables(call: Call) -> Any:
    known = every_topic(call, AclOperation.DESCRIBE, or_static=True)
    topics = {topic.record.name: topic for topic in known if schema_of(topic)}
    names = sorted(topics)
    page, has_more = call.page(names[bisect_right(names, call.query.get("after", "")) :])
    return {"tables": [facts(topics[name]) for name in page], "next": page[-1] if has_more else None}


async def describe(call: Call) -> Any:
    return shown(find_typed(call, AclOperation.DESCRIBE, or_static=True)[0])


async def delete(call: Call) -> None:
    topic, _ = find_table(call, AclOperation.DELETE, or_static=True)
    await delete_topic(call.node, topic.record.name)


async def list_tablets(call: Call) -> Any:
    topic, _ = find_typed(call, AclOperation.DESCRIBE, or_static=True)
    tablets = [] if topic.record.is_static else topic.partitions
    page, has_more = call.page(tablets[call.query.get("after", -1) + 1 :])
    return {
        "tablets": [_tablet(call, topic, partition) for partition in page],
        "next": page[-1].index if has_more else None,
    }


async def trim(call: Call) -> Any:
    """Rows before `trimmed_row_count` are gone when this returns; none that are gone come back (E.4)."""
    topic, _ = find_table(call, AclOperation.DELETE)
    partition = topic.partitions[check_tablet(topic, call.body["tablet_index"])]
    count = call.body["trimmed_row_count"]
    if count > partition.end_offset:
        text = f"cannot trim tablet {partition.index} at {count}: its rows end at {partition.end_offset}"
        raise TableError("CANNOT_TRIM", text, "Give the index of the first row to keep.")
    await partition.delete_before(max(count, 0))
    return {"tablet_index": partition.index, "trimmed_row_count": partition.start_offset}


async def alter(call: Call) -> Any:
    """Another schema, of a table that is unmounted as a whole (E.10). Any other topic takes one while it is served, for
    it is a view of records that are there; no columns take it away."""
    topic = call.topic(AclOperation.ALTER, or_static=True)
    if ("schema" in call.body) == ("dynamic" in call.body):
        raise bad_request("give one of schema and dynamic")
    if "dynamic" in call.body:
        table, _ = find_table(call, AclOperation.ALTER, or_static=True)
        return shown(await convert(call, table, is_static=not call.body["dynamic"]))
    if topic.record.table is None:
        return await _set_schema(call, topic)
    schema = _new_schema(call, topic)

    def altered(record: TopicRecord) -> TopicRecord:
        assert record.table is not None
        check_unmounted(topic)
        columns = record.table.columns
        old = read_schema(columns, len(columns), record.config)
        check_alteration(old, schema)
        check_names(schema, old)
        return replace(record, table=replace(record.table, columns=schema.documents()))

    return await _changed(call, topic, altered)


async def _set_schema(call: Call, topic: Topic) -> Any:
    change = Change(SCHEMA, Operation.DELETE, None)
    if call.body["schema"]:
        columns = _new_schema(call, topic).documents()
        change = Change(SCHEMA, Operation.SET, json.dumps(columns, ensure_ascii=False))
    resource = (Resource.TOPIC, topic.record.name)
    await change_configs(call, resource, [change], replaces=False, validate_only=False)
    return shown(call.topic(AclOperation.DESCRIBE))


def _new_schema(call: Call, topic: Topic) -> Schema:
    return read_schema(call.body["schema"], call.node.settings.table_columns_max, topic.record.config)


async def _changed(call: Call, topic: Topic, change: Any) -> Any:
    changed = await call.node.cell.current.topics.change(topic.record.name, change)
    return shown(changed)


def _given_config(body: Mapping[str, Any]) -> Mapping[str, str]:
    given = config_texts(body.get("config", {}))
    for name, cure in _OWN_CONFIG.items():
        if name in given:
            raise TableError("INVALID_TABLE", f"config has {name}, which a table has by another name", cure)
    return given


def _check_static(body: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    """A static table has no tablets to speak of, and its commit_ordering is weak (E.10)."""
    for name in _OF_TABLETS:
        if name in body:
            text = f"{name} is given, and dynamic is false: a static table has no tablets"
            raise TableError("INVALID_TABLE", text, f"Leave {name} out, or make the table dynamic.")
    if attributes.get("commit_ordering", "weak") != "weak":
        text = "attributes.commit_ordering is 'strong', and dynamic is false"
        raise TableError("INVALID_ATTRIBUTE", text, "Leave it out: a static table's is weak.")


def _first_rows(body: Mapping[str, Any]) -> Sequence[int]:
    count: int = body.get("tablet_count", 1)
    given: list[int] | None = body.get("trimmed_row_counts")
    if given is None:
        return [0] * count
    if "tablet_count" not in body or len(given) != count:
        text = f"trimmed_row_counts has {len(given)} numbers, for tablet_count = {body.get('tablet_count')}"
        raise TableError("INVALID_TABLE", text, "Give tablet_count, and one number for each tablet.")
    return given


def _tablet(call: Call, topic: Topic, partition: PartitionServer) -> dict[str, Any]:
    table, log = topic.record.table, partition.state
    state = state_of(topic, partition.index)
    home = str(topic.record.cell_of(partition.index))
    flushed = log.head.blobs[0].offset if log.head.blobs else log.end_offset
    return {
        "index": partition.index,
        "tablet_id": topic.record.tablet_of(partition.index),
        "state": state.value,
        "trimmed_row_count": log.start_offset,
        "flushed_row_count": flushed,
        "total_row_count": log.end_offset,
        "cell_id": None if state is MountState.UNMOUNTED else home,
        "home_cell_id": home,
        "mounted_attributes": {} if table is None else in_force(table.mounted.of_tablet(partition.index)),
        "statistics": _statistics(log),
    }


def _statistics(log: Partition) -> dict[str, Any]:
    """By the names of D.1. A chunk is a body blob, the dynamic store is the head, and the store compresses nothing:
    batches lie there as they came. What only sorted tables have is 0."""
    chunks, size = len(log.bodies), log.size_bytes
    first, end = (log.bodies.offsets[0], log.bodies.ends[-1]) if chunks else (0, 0)
    return {
        "tablet_count": 1,
        "partition_count": 0,
        "chunk_count": chunks,
        "store_count": chunks + bool(log.head.blobs),
        "overlapping_store_count": 0,
        "unmerged_row_count": end - first,
        "compressed_data_size": size,
        "uncompressed_data_size": size,
        "hunk_compressed_data_size": 0,
        "hunk_uncompressed_data_size": 0,
        "disk_space": size,
        "disk_space_per_medium": {"default": size},
        "memory_size": log.head.run.held,
        "dynamic_memory_pool_size": log.head.run.held,
        "preload_completed_store_count": 0,
        "preload_pending_store_count": 0,
        "preload_failed_store_count": 0,
        "tablet_count_per_memory_mode": {"none": 1, "compressed": 0, "uncompressed": 0},
    }
