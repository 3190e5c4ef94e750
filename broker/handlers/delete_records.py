"""DeleteRecords (key 21), versions 0 to 2.

Behaviour: the start offset of each partition moves up to the offset given, durably, before the answer tells it as the
low watermark; -1 means the high watermark. An offset at or before the start changes nothing. One above the high
watermark or below -1 is OFFSET_OUT_OF_RANGE; a topic whose cleanup.policy has no `delete` is POLICY_VIOLATION.
Left out: timeout_ms. There is no replica to wait for.
"""

import asyncio

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.partitions import NO_TOPIC_ID, find_group, find_readable
from pqbroker.broker.refusals import REFUSED, translate
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
NO_OFFSET = -1


async def serve(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = refuse(context, request, ErrorCode.NONE, "")
    await asyncio.gather(
        *(
            _delete(context, topic.name, asked, answer)
            for topic, answers in zip(request.topics, response.topics, strict=True)
            for asked, answer in zip(topic.partitions, answers.partitions, strict=True)
        )
    )
    return response


def refuse(context: Context, request: DeleteRecordsRequest, code: ErrorCode, message: str) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=NO_OFFSET, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _delete(
    context: Context, topic: str, asked: DeleteRecordsPartition, answer: DeleteRecordsPartitionResult
) -> None:
    try:
        group = find_group(context.node.groups, topic, NO_TOPIC_ID, by_id=False)
        partition = find_readable(group, asked.partition_index)
        if "delete" not in group.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not delete records")
        offset = partition.end_offset if asked.offset == HIGH_WATERMARK else asked.offset
        answer.low_watermark = await partition.delete_before(offset)
    except REFUSED as error:
        answer.error_code, _ = translate(error)
        context.node.metrics.count_error(ErrorCode(answer.error_code))


API = Api(
    key=21, name="DeleteRecords", version_min=0, version_max=2,
    request=DeleteRecordsRequest, response=DeleteRecordsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
