"""A look at a broker before Spark starts: which topics exist, and the newest values of one. A start of Spark costs more
than most jobs."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from pqbroker.pipeline.connection_security import client_settings, worker_options
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.topics_shown import shown_topics

T = TypeVar("T")
_TIMEOUT_S = 30.0
"""Time for an answer, and without a record before the end of a sample."""
_AT_ONCE = 1000


def check_topics(broker: str, names: Sequence[str]) -> None:
    """JobError for a topic that does not exist, with those that do."""
    _ask(broker, _check(broker, names))


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
        if name not in known:
            raise JobError(f"no topic {name} at {broker}; {shown_topics(sorted(known))}")


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
