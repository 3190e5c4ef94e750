"""ListOffsets (key 2), versions 1 to 11.

Behaviour: latest (-1) and earliest (-2, and -4 since nothing is tiered) are answered from memory, at once, always:
Spark calls it after every poll. A time of 0 or later gives the first record at or after it, exact to the record; -3 the
record with the greatest timestamp; nothing found is offset -1 and timestamp -1. -5 (latest tiered) and -6 (earliest
that is to be tiered) are offset -1. What is found ends where a Fetch of that isolation level does: latest is the
high watermark, for read_committed the last stable offset. The leader epoch
(from version 4) is the current one beside latest, else that of the record at the offset, and -1 where there is no
offset. A partition named twice is INVALID_REQUEST, once, as in Kafka.
Left out: requests of replicas; they get the same answer.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import check_leader_epoch, find_loaded
from pqbroker.pq.reading.query import Isolation, visible_end
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from pqbroker.pq.serving.partition_server import PartitionServer

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SEARCHES_AT_ONCE = 64
"""Searches of one long request that are under way at a time."""
_LEAST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def serve(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    if context.is_long:
        return _serve_in_slices(context, request)
    response = ListOffsetsResponse()
    searches: list[Awaitable[None]] = []
    for named in _answered(request, response):
        search = None if named is None else _begin(context, request, *named)
        if search is not None:
            searches.append(search)
    return _search(response, searches) if searches else response


def refuse(context: Context, request: ListOffsetsRequest, code: ErrorCode, message: str) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=each(
            request.topics,
            lambda topic: ListOffsetsTopicResponse(
                name=topic.name,
                partitions=each(topic.partitions, lambda asked: _nothing(asked.partition_index, code)),
            ),
        )
    )


async def _serve_in_slices(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Serve with turns for others between the partitions, and a bounded number of searches at a time."""
    response = ListOffsetsResponse()
    searches: list[Awaitable[None]] = []
    for named in _answered(request, response):
        await context.breathe()
        search = None if named is None else _begin(context, request, *named)
        if search is not None:
            searches.append(search)
        if len(searches) == SEARCHES_AT_ONCE:
            await asyncio.gather(*searches)
            searches.clear()
    return await _search(response, searches)


def _answered(
    request: ListOffsetsRequest, response: ListOffsetsResponse
) -> Iterator[tuple[str, ListOffsetsPartition, list[ListOffsetsPartitionResponse]] | None]:
    """Each partition that is named once, with its topic and where its answer goes; others are refused, once each.

    None stands for a step that leaves nothing to do, so that others have their turns between these too.
    """
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    for topic in request.topics:
        answers: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        yield None
        for asked in topic.partitions:
            count = times.pop((topic.name, asked.partition_index), 0)
            if count > 1:
                answers.append(_nothing(asked.partition_index, ErrorCode.INVALID_REQUEST))
            yield (topic.name, asked, answers) if count == 1 else None


def _begin(
    context: Context,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    answers: list[ListOffsetsPartitionResponse],
) -> Awaitable[None] | None:
    """Add the answer for a partition, or what will be it when the search that is returned is done."""
    answer = _nothing(asked.partition_index)
    answers.append(answer)
    try:
        return _locate(context, request, topic, asked, answer)
    except KafkaError as error:
        answer.error_code, _ = translate(error)
        return None


def _locate(
    context: Context,
    request: ListOffsetsRequest,
    named: str,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> Awaitable[None] | None:
    """Fill in the answer from memory, or return the search that will."""
    topic = find_topic(context, AclOperation.DESCRIBE, named)
    partition = find_loaded(topic, asked.partition_index)
    check_leader_epoch(partition, asked.current_leader_epoch)
    time, isolation = asked.timestamp, Isolation.of(request.isolation_level)
    if time < EARLIEST_PENDING_UPLOAD or context.version < _LEAST_VERSION.get(time, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"time {time} means nothing in version {context.version}")
    if time >= 0 or time == MAX_TIMESTAMP:
        return _search_record(context, partition, time, isolation, answer)
    if time == LATEST:
        answer.leader_epoch = partition.leader_epoch
        answer.offset = visible_end(partition.state, isolation)
    elif time in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = partition.start_offset
        answer.leader_epoch = partition.state.epochs.epoch_at(answer.offset)
    return None


async def _search_record(
    context: Context,
    partition: "PartitionServer",
    time: int,
    isolation: Isolation,
    answer: ListOffsetsPartitionResponse,
) -> None:
    try:
        is_latest = time == MAX_TIMESTAMP
        search = partition.times.latest(isolation) if is_latest else partition.times.first_at(time, isolation)
        found = await search
    except KafkaError as error:
        answer.error_code, _ = translate(error)
        return
    if found is not None:
        answer.offset, answer.timestamp, answer.leader_epoch = found


async def _search(response: ListOffsetsResponse, searches: list[Awaitable[None]]) -> ListOffsetsResponse:
    await asyncio.gather(*searches)
    return response


def _nothing(index: int, code: ErrorCode = ErrorCode.NONE) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
    )


API = Api(request=ListOffsetsRequest, response=ListOffsetsResponse, serve=serve, refuse=refuse)
