"""Producing by POST: one batch for each partition that the records go to, stored as any producer's batch. Over a
partition's quota the answer is delayed; the records are stored no later."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.topics.partitions import check_batch, find_partition, unknown_topic
from pqbroker.broker.services.topics.record_checks import Preparation, preparation_of
from pqbroker.broker.web.resources.contents import CONTENT, HEADERS, TIMESTAMP, read, read_text
from pqbroker.broker.web.resources.partitioner import partition_of
from pqbroker.broker.web.routing.forwarded_calls import forward
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
    topic = call.topic(AclOperation.WRITE, ())
    now_ms, count = call.node.clock(), len(topic.partitions)
    numbers, batches, weights = await asyncio.to_thread(_encode, asked, now_ms, count, preparation_of(topic))
    headers = {index: check_batch(topic, batch) for index, batch in batches.items()}
    away = {index: node for index in batches if (node := call.node.leaders.only_node(topic, (index,))) is not None}
    here = [index for index in batches if index not in away]
    call.check_served(topic, here)
    partitions = {index: find_partition(topic, index) for index in here}
    writes = [partitions[index].write(batches[index], headers[index], weights.get(index)) for index in here]
    pause_ms = max(
        (partitions[index].throttle_ms(len(batches[index]), headers[index].record_count) for index in here), default=0
    )
    written_away = [_write_away(call, node, _of_node(away, node, numbers)) for node in sorted({*away.values()})]
    outcomes, others = await asyncio.gather(
        asyncio.gather(*writes, return_exceptions=True), asyncio.gather(*written_away)
    )
    if pause_ms:
        await asyncio.sleep(pause_ms / 1000)
    written = {index: _base_offset(outcome) for index, outcome in zip(here, outcomes, strict=True)}
    for of_node in others:
        written |= of_node
    offsets = await asyncio.to_thread(_offsets, _all_written(written), numbers, len(asked))
    return {"cell": call.cell.name, "offsets": offsets}


def _of_node(away: Mapping[int, int], node: int, numbers: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
    """Return the numbers of the records of each partition that a node runs."""
    return {index: numbers[index] for index, runner in away.items() if runner == node}


async def _write_away(call: Call, node: int, numbers: Mapping[int, Sequence[int]]) -> Mapping[int, int | BaseException]:
    """Have another node write records of its partitions; return the offset of the first one in each, or why there is
    none."""
    others, asked = call.node.others(), call.body["records"]
    if others is None:  # a node serves the others' calls, and forwards none
        return dict.fromkeys(numbers, Problem(503, "OTHER_NODE", f"node {node} runs the partition", _AGAIN))
    placed = [{**asked[one], "partition": index} for index, chosen in numbers.items() for one in chosen]
    (route,) = ROUTES
    try:
        answer = await forward(others, node, route, replace(call, body={"records": placed}))
        offsets = [one["offset"] for one in answer["offsets"]]
    except Problem as problem:
        return dict.fromkeys(numbers, problem)
    firsts = accumulate((len(chosen) for chosen in numbers.values()), initial=0)
    return {index: offsets[first] for index, first in zip(numbers, firsts, strict=False)}


def _base_offset(outcome: Written | BaseException) -> int | BaseException:
    return outcome.base_offset if isinstance(outcome, Written) else outcome


def _place(call: Call) -> int | None:
    """Records are encoded and checked where HTTP is, and forwarded by partition."""
    return None


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
    written: Mapping[int, int], numbers: Mapping[int, Sequence[int]], count: int
) -> list[dict[str, int] | None]:
    """Return where each record was written, in the order of the request. Runs in a thread."""
    offsets: list[dict[str, int] | None] = [None] * count
    for index, one in written.items():
        for delta, number in enumerate(numbers[index]):
            offsets[number] = {"partition": index, "offset": one + delta}
    return offsets


def _all_written(outcomes: Mapping[int, int | BaseException]) -> dict[int, int]:
    """Return the first offset in each partition. Raise Problem when one failed, which says where the records went."""
    written = {index: outcome for index, outcome in outcomes.items() if isinstance(outcome, int)}
    for index, outcome in outcomes.items():
        if isinstance(outcome, BaseException):
            is_away = isinstance(outcome, Problem)
            problem = outcome if isinstance(outcome, Problem) else of_error(outcome)
            others = f"; written at partitions {', '.join(map(str, sorted(written)))}" if written else ""
            text = f"{problem}{others}" if is_away else f"partition {index}: {problem}{others}"
            raise Problem(problem.status, problem.code, text, problem.cure)
    return written


NO_TIMESTAMP = -1
_AGAIN = "Try again: its cell moves."
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
        place=_place,
        body_example={"records": [{"key": "k1", "value": {"json": {"id": 1}}}, {"value": "text"}]},
        example={"cell": "0", "offsets": [{"partition": 0, "offset": 42}, {"partition": 0, "offset": 43}]},
    ),
)  # fmt: skip
