"""Producing by POST: one batch for each partition that the records go to, stored as any producer's batch. Over a
partition's quota the answer is delayed; the records are stored no later."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.topics.partitions import check_batch, find_partition, unknown_topic
from pqbroker.broker.services.topics.record_checks import Preparation, preparation_of
from pqbroker.broker.web.resources.contents import CONTENT, HEADERS, TIMESTAMP, read, read_text
from pqbroker.broker.web.resources.partitioner import partition_of
from pqbroker.broker.web.routing.problems import Problem, bad_request, of_error
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.pq.log.write_cycle import Written
from pqbroker.protocol.records import Record, encode_batch, read_header


async def produce(call: Call) -> Any:
    """Write records. None is written unless every batch passes the checks; then partitions succeed or fail one by
    one."""
    asked = call.body["records"]
    if not asked:
        raise bad_request("body.records is empty; give at least one record")
    topic = call.topic(AclOperation.WRITE)
    now_ms, count = call.node.clock(), len(topic.partitions)
    numbers, batches, weights = await asyncio.to_thread(_encode, asked, now_ms, count, preparation_of(topic))
    headers = {index: check_batch(topic, batch) for index, batch in batches.items()}
    partitions = {index: find_partition(topic, index) for index in batches}
    writes = [partitions[index].write(batch, headers[index], weights.get(index)) for index, batch in batches.items()]
    pause_ms = max(
        partitions[index].throttle_ms(len(batch), headers[index].record_count) for index, batch in batches.items()
    )
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    if pause_ms:
        await asyncio.sleep(pause_ms / 1000)
    all_written = _all_written(dict(zip(batches, outcomes, strict=True)))
    offsets = await asyncio.to_thread(_offsets, all_written, numbers, len(asked))
    return {"cell": call.cell.name, "offsets": offsets}


def parse_record(item: Mapping[str, Any], where: str, now_ms: int) -> Record:
    headers = tuple(
        (read_text(header["key"], f"{where}.headers[{number}].key").decode(),
         read(header["value"], f"{where}.headers[{number}].value"))
        for number, header in enumerate(item.get("headers", ()))
    )  # fmt: skip
    key, value = read(item.get("key"), f"{where}.key"), read(item["value"], f"{where}.value")
    timestamp = item.get("timestamp", now_ms)
    return Record(0, NO_TIMESTAMP if timestamp is None else timestamp, key, value, headers)


def _encode(
    asked: Sequence[Any], now_ms: int, partition_count: int, preparation: Preparation | None
) -> tuple[Mapping[int, Sequence[int]], dict[int, memoryview], Mapping[int, Weighed]]:
    """Return by partition the numbers of its records, a batch of them, and their weights. Runs in a thread, for there
    may be many."""
    records = [parse_record(item, f"body.records[{number}]", now_ms) for number, item in enumerate(asked)]
    keyless = partition_of(None, partition_count)
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for number, (item, record) in enumerate(zip(asked, records, strict=True)):
        chosen = keyless if record.key is None else partition_of(record.key, partition_count)
        index = item.get("partition", chosen)
        if index >= partition_count:
            raise unknown_topic()
        numbers[index].append(number)
    batches = {index: memoryview(encode_batch([records[one] for one in chosen])) for index, chosen in numbers.items()}
    if preparation is None:
        return numbers, batches, {}
    prepared = {index: preparation.apply(batch, read_header(batch)) for index, batch in batches.items()}
    return (
        numbers,
        {index: one.records for index, one in prepared.items()},
        {index: one.weights for index, one in prepared.items()},
    )


def _offsets(
    written: Mapping[int, Written], numbers: Mapping[int, Sequence[int]], count: int
) -> list[dict[str, int] | None]:
    """Return where each record was written, in the order of the request. Runs in a thread."""
    offsets: list[dict[str, int] | None] = [None] * count
    for index, one in written.items():
        for delta, number in enumerate(numbers[index]):
            offsets[number] = {"partition": index, "offset": one.base_offset + delta}
    return offsets


def _all_written(outcomes: Mapping[int, Written | BaseException]) -> dict[int, Written]:
    """Return what was written. Raise Problem when a partition failed, which says where the records went."""
    written = {index: outcome for index, outcome in outcomes.items() if isinstance(outcome, Written)}
    for index, outcome in outcomes.items():
        if isinstance(outcome, BaseException):
            problem = of_error(outcome)
            others = f"; written at partitions {', '.join(map(str, sorted(written)))}" if written else ""
            text = f"partition {index}: {problem}{others}"
            raise Problem(problem.status, problem.code, text, problem.cure)
    return written


NO_TIMESTAMP = -1
RECORD_FIELDS: Mapping[str, Schema] = {"key": CONTENT, "headers": HEADERS, "timestamp": nullable(TIMESTAMP)}
"""Fields of a record to write, besides its value."""
_PLACE: Mapping[str, Schema] = {"partition": COUNT, "topic": TEXT, "offset": OFFSET}
"""Fields of the place that a record was read from. Only the partition counts; the others are accepted and ignored."""

ROUTES = (
    Route(
        "POST", "/v1/topics/{name}/records", "Produce records", produce,
        object_of({"cell": TEXT, "offsets": array_of(object_of({"partition": COUNT, "offset": OFFSET}))}),
        body=object_of({"records": array_of(object_of({"value": CONTENT}, {**RECORD_FIELDS, **_PLACE}))}),
        status=201,
        body_example={"records": [{"key": "k1", "value": {"json": {"id": 1}}}, {"value": "text"}]},
        example={"cell": "0", "offsets": [{"partition": 0, "offset": 42}, {"partition": 0, "offset": 43}]},
    ),
)  # fmt: skip
