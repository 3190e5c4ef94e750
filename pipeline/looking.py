"""A look at a broker before Spark starts: which topics exist, their columns, and the newest values of one. A start of
Spark costs more than most jobs."""

import asyncio
import json
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from pqbroker.pipeline.connection_security import client_settings, http_login, tls, worker_options
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.expected_columns import JSON, TopicValues, check_columns, check_written
from pqbroker.pipeline.lakes.landing import is_pattern, matching
from pqbroker.pipeline.schema_text import read_columns
from pqbroker.pipeline.topics_shown import shown_topics
from pqbroker.tables.columns import Column
from pqbroker.tables.paths import ROOT, topic_name
from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import SYSTEM, read_schema
from pqbroker.tables.types import TYPES

T = TypeVar("T")
_TIMEOUT_S = 30.0
"""Time for an answer, and without a record before the end of a sample."""
_AT_ONCE = 1000
_SAMPLE = 100
"""Newest values that are looked at for fields of a schema."""
_SCHEMA, _FORMAT, _INVALID = "pq.schema", "value.format", "value.invalid"
_REFUSE = "refuse"
_HTTP = "pqbroker.advertised.http"
_HTTP_TIMEOUT_S = 10.0
_COLUMNS_MAX = 1 << 20


def check_topics(broker: str, names: Sequence[str]) -> None:
    """JobError for a topic that does not exist, or a pattern that no name matches, with those that do."""
    _ask(broker, _check(broker, names))


def check_schema(broker: str, topic: str, schema: str) -> list[str]:
    """Return lines that warn of columns of a schema that values of the topic lack. JobError for a column that a table
    has not, or has in another type."""
    configs = _ask(broker, _configs(broker, topic))
    columns = _columns(broker, topic, configs)
    values = [_object(value) for value in _ask(broker, _newest(broker, topic, _SAMPLE))]
    objects = [value for value in values if isinstance(value, dict)]
    others = [value for value in values if isinstance(value, bytes)]
    found = TopicValues(topic, columns, configs.get(_FORMAT) or JSON, objects, others)
    return check_columns(read_columns(schema), found)


def check_rows(broker: str, topic: str, names: Collection[str], origin: str) -> None:
    """JobError where the topic is a table that refuses records, and rows with columns of these names lack one."""
    configs = _ask(broker, _configs(broker, topic))
    if configs.get(_INVALID) == _REFUSE and (configs.get(_FORMAT) or JSON) == JSON:
        check_written(topic, _columns(broker, topic, configs), names, origin)


def check_copied(source: tuple[str, str], target: tuple[str, str]) -> None:
    """JobError where rows of one table are none of the other: a broker and a topic of each."""
    configs = _ask(source[0], _configs(*source))
    columns = _columns(*source, configs)
    if columns and (configs.get(_FORMAT) or JSON) == JSON:
        names = [column.name for column in columns if column.part == "value"]
        check_rows(*target, names, f"table {source[1]}")


def newest_values(broker: str, topic: str, count: int) -> list[bytes]:
    """Return about `count` of the newest values of a topic, as many of each partition, without null. JobError."""
    return _ask(broker, _newest(broker, topic, count))


def _ask(broker: str, question: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(question)
    except (KafkaError, TimeoutError, OSError) as error:
        why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        raise JobError(f"the broker at {broker}: {why}") from error


def _consumer(broker: str, *topics: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics, bootstrap_servers=broker, client_id="pqbroker-pipeline", isolation_level="read_committed",
        enable_auto_commit=False, auto_offset_reset="earliest", **worker_options(client_settings()),
    )  # fmt: skip


async def _check(broker: str, names: Sequence[str]) -> None:
    consumer = _consumer(broker)
    try:
        await asyncio.wait_for(consumer.start(), _TIMEOUT_S)
        known = await asyncio.wait_for(consumer.topics(), _TIMEOUT_S)
    finally:
        await consumer.stop()
    for name in names:
        if not any(one in known for one in matching(name, sorted(known))):
            raise _no_topic(broker, name, sorted(known))


def _no_topic(broker: str, name: str, known: Sequence[str]) -> JobError:
    if is_pattern(name):
        return JobError(f"no topic at {broker} is named like {name}; {shown_topics(known)}")
    with suppress(TableError):
        if name.startswith(ROOT) and (topic := topic_name(name)) in known:
            return JobError(f"no topic {name} at {broker}; table {name} is the topic {topic}: give that name")
    return JobError(f"no topic {name} at {broker}; {shown_topics(known)}")


async def _configs(broker: str, topic: str) -> Mapping[str, str]:
    """Return the configs that say of which form values are, and the broker's HTTP address; none where the broker has
    none, or does not show them."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=broker, client_id="pqbroker-pipeline", **worker_options(client_settings())
    )
    try:
        await asyncio.wait_for(admin.start(), _TIMEOUT_S)
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys((_SCHEMA, _FORMAT, _INVALID), ""))
        about: Any = await asyncio.wait_for(admin.describe_cluster(), _TIMEOUT_S)
        node = str(about["brokers"][0]["node_id"])
        address = ConfigResource(ConfigResourceType.BROKER, node, {_HTTP: ""})
        answers = await asyncio.wait_for(admin.describe_configs([asked, address]), _TIMEOUT_S)
    finally:
        await admin.close()
    resources = (resource for answer in answers for resource in answer.resources)
    return {entry[0]: entry[1] or "" for resource in resources for entry in resource[4]}


def _columns(broker: str, topic: str, configs: Mapping[str, str]) -> Sequence[Column]:
    """Return the columns of a table, or of a topic with a schema; none of another topic, of a schema of a later
    release, or where the broker does not show them to this user."""
    with suppress(KeyError, ValueError, TableError):
        if configs.get(_SCHEMA):
            return tuple(read_schema(json.loads(configs[_SCHEMA]), _COLUMNS_MAX).columns.values())
        if configs.get(_HTTP):
            return _columns_by_http(broker, topic, configs[_HTTP])
    return ()


def _columns_by_http(broker: str, topic: str, address: str) -> Sequence[Column]:
    """Return the columns that a table was made with. The login goes to the broker's own host alone, and plainly only
    where connections to Kafka are plain too."""
    from pqbroker.client import Client, ClientError

    host = address.rpartition("://")[2].rpartition(":")[0]
    is_encrypted = address.startswith("https://")
    context = tls()
    is_safe = host == broker.rpartition(":")[0] and (is_encrypted or context is None)
    login, used = http_login() if is_safe else None, context if is_encrypted else None
    with suppress(ClientError, OSError), Client(address, timeout_s=_HTTP_TIMEOUT_S, tls=used, login=login) as client:
        return tuple(
            Column(column.name, TYPES[column.type], column.is_required, column.part)
            for column in client.table(topic).columns() or ()
            if not column.name.startswith(SYSTEM)
        )
    return ()


def _object(value: bytes) -> dict[str, Any] | bytes:
    """Return a value as a JSON object, or as it is."""
    with suppress(ValueError, RecursionError):
        document = json.loads(value)
        if isinstance(document, dict):
            return document
    return value


async def _newest(broker: str, topic: str, count: int) -> list[bytes]:
    await _check(broker, [topic])  # a consumer that names a topic would have it created
    consumer = _consumer(broker, topic)
    try:
        await asyncio.wait_for(consumer.start(), _TIMEOUT_S)
        partitions = list(consumer.assignment())
        ends = await asyncio.wait_for(consumer.end_offsets(partitions), _TIMEOUT_S)
        begins = await asyncio.wait_for(consumer.beginning_offsets(partitions), _TIMEOUT_S)
        each = -(-count // max(1, len(partitions)))
        for partition in partitions:
            consumer.seek(partition, max(begins[partition], ends[partition] - each))
        return await _values(consumer, {one: end for one, end in ends.items() if end > begins[one]})
    finally:
        await consumer.stop()


async def _values(consumer: AIOKafkaConsumer, ends: dict[Any, int]) -> list[bytes]:
    """Return the values from where the consumer stands up to the ends, which records that are gone may lie before."""
    values: list[bytes] = []
    while ends:
        records = await consumer.getmany(*ends, timeout_ms=int(1000 * _TIMEOUT_S), max_records=_AT_ONCE)
        for partition, found in records.items():
            values += [one.value for one in found if one.value is not None and one.offset < ends[partition]]
        ends = {one: end for one, end in ends.items() if await consumer.position(one) < end}
        if not records:
            break
    return values
