"""ListOffsets (key 2), versions 1 to 11.

Behaviour: latest (-1) and earliest (-2, and -4 since nothing is tiered) are answered from memory, at once, always:
Spark asks after every poll. A time of 0 or later gives the first record at or after it, exact to the record; -3 the
record with the greatest timestamp; nothing found is offset -1 and timestamp -1. -5 (latest tiered) and -6 (earliest
that is to be tiered) are offset -1. With isolation read_committed, latest is the last stable offset. The leader epoch
(from version 4) is the current one beside latest, else that of the record at the offset, and -1 where there is no
offset.
Left out: replicas as askers; they get the same answer.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.partitions import NO_TOPIC_ID, check_leader_epoch, find_group, find_readable
from pqbroker.broker.refusals import translate
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from pqbroker.pq.partition_server import PartitionServer

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1
_LEAST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def serve(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    response = ListOffsetsResponse()
    searches: list[Awaitable[None]] = []
    for topic in request.topics:
        answers: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            answer = _nothing(asked.partition_index)
            answers.append(answer)
            try:
                search = _locate(context, request, topic.name, asked, answer)
            except KafkaError as error:
                answer.error_code, _ = translate(error)
                context.node.metrics.count_error(error.code)
                continue
            if search is not None:
                searches.append(search)
    return _search(response, searches) if searches else response


def refuse(context: Context, request: ListOffsetsRequest, code: ErrorCode, message: str) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = [_nothing(asked.partition_index) for asked in topic.partitions]
        for answer in answers:
            answer.error_code = code
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _locate(
    context: Context,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> Awaitable[None] | None:
    """Fill in the answer from memory, or return the search that will."""
    group = find_group(context.node.groups, topic, NO_TOPIC_ID, by_id=False)
    partition = find_readable(group, asked.partition_index)
    check_leader_epoch(partition, asked.current_leader_epoch)
    time = asked.timestamp
    if time < EARLIEST_PENDING_UPLOAD or context.version < _LEAST_VERSION.get(time, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"time {time} means nothing in version {context.version}")
    if time >= 0 or time == MAX_TIMESTAMP:
        return _search_record(context, partition, time, answer)
    if time == LATEST:
        answer.leader_epoch = partition.leader_epoch
        is_committed = request.isolation_level == READ_COMMITTED
        answer.offset = partition.last_stable_offset if is_committed else partition.end_offset
    elif time in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = partition.start_offset
        answer.leader_epoch = partition.epoch_at(answer.offset)
    return None


async def _search_record(
    context: Context, partition: "PartitionServer", time: int, answer: ListOffsetsPartitionResponse
) -> None:
    try:
        found = await (partition.max_timestamp() if time == MAX_TIMESTAMP else partition.offset_at_timestamp(time))
    except KafkaError as error:
        answer.error_code, _ = translate(error)
        context.node.metrics.count_error(error.code)
        return
    if found is not None:
        answer.offset, answer.timestamp, answer.leader_epoch = found


async def _search(response: ListOffsetsResponse, searches: list[Awaitable[None]]) -> ListOffsetsResponse:
    await asyncio.gather(*searches)
    return response


def _nothing(index: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, timestamp=-1, offset=-1, leader_epoch=-1)


API = Api(
    key=2, name="ListOffsets", version_min=1, version_max=11,
    request=ListOffsetsRequest, response=ListOffsetsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
