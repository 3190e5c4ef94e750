"""DeleteRecords (key 21), versions 0 to 2.

Behaviour: the start offset of each partition moves up to the offset given, durably, before the answer tells it as the
low watermark; -1 means the high watermark. An offset at or before the start changes nothing. One above the high
watermark or below -1 is OFFSET_OUT_OF_RANGE; a topic whose cleanup.policy has no `delete` is POLICY_VIOLATION.
Of a partition named twice the last offset counts, and it is answered once, as in Kafka.
Left out: timeout_ms. There is no replica to wait for.
"""

import asyncio
from collections.abc import Awaitable

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_loaded
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
NO_OFFSET = -1
DELETIONS_AT_ONCE = 64
"""Partitions of one request that delete at a time."""


async def serve(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    deletions: list[Awaitable[None]] = []
    offsets: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        await context.breathe()
        offsets.setdefault(topic.name, {}).update((asked.partition_index, asked.offset) for asked in topic.partitions)
    for name, wanted in offsets.items():
        await context.breathe()
        answers: list[DeleteRecordsPartitionResult] = []
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=answers))
        for index, offset in wanted.items():
            await context.breathe()
            answers.append(DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET))
            deletions.append(_delete(context, name, offset, answers[-1]))
            if len(deletions) == DELETIONS_AT_ONCE:
                await asyncio.gather(*deletions)
                deletions.clear()
    await asyncio.gather(*deletions)
    return response


def refuse(context: Context, request: DeleteRecordsRequest, code: ErrorCode, message: str) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=each(
            request.topics,
            lambda topic: DeleteRecordsTopicResult(
                name=topic.name,
                partitions=each(
                    topic.partitions,
                    lambda asked: DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=NO_OFFSET, error_code=code
                    ),
                ),
            ),
        )
    )


async def _delete(context: Context, asked: str, wanted: int, answer: DeleteRecordsPartitionResult) -> None:
    try:
        topic = find_topic(context, AclOperation.DELETE, asked)
        partition = find_loaded(topic, answer.partition_index)
        if "delete" not in topic.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {asked} does not delete records")
        offset = partition.end_offset if wanted == HIGH_WATERMARK else wanted
        answer.low_watermark = await partition.retention.delete_before(offset)
    except REFUSED as error:
        answer.error_code, _ = translate(error)


API = Api(request=DeleteRecordsRequest, response=DeleteRecordsResponse, serve=serve, refuse=refuse)
