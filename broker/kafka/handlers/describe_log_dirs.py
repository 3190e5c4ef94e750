"""DescribeLogDirs (key 35), versions 1 to 5.

Behaviour: each pool of the cell with its directory, and from version 4 its space. Every partition asked for that is
here (null: all) is in the pool that its records go to now, with the bytes of all of them, though older ones may lie
where they went before a move; partitions that are not here are left out.
What is named twice is answered once, as in Kafka.
Left out: replicas that follow or move (offset_lag 0, is_future_key false). No directory is cordoned (version 5).
"""

from collections.abc import AsyncIterator

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def serve(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    check_access(context, AclOperation.DESCRIBE)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=pool.directory,
                total_bytes=pool.total_bytes,
                usable_bytes=pool.free_bytes,
                topics=[topic async for topic in _topics(context, request, pool.name)],
            )
            for pool in context.node.pools()
        ]
    )


async def _topics(
    context: Context, request: DescribeLogDirsRequest, pool: str
) -> AsyncIterator[DescribeLogDirsTopic]:
    asked: dict[str, set[int]] = {}
    for entry in request.topics or ():
        await context.breathe()
        asked.setdefault(entry.topic, set()).update(entry.partitions)
    leaders = context.node.leaders
    for topic in every_topic(context, None, None if request.topics is None else asked):
        await context.breathe()
        name = topic.record.name
        partitions: list[DescribeLogDirsPartition] = []
        for each in topic.partitions:
            await context.breathe()
            if each.index >= topic.record.partitions:
                break  # a table of fewer tablets by now
            is_asked = request.topics is None or each.index in asked[name]
            if is_asked and each.pool == pool and leaders.replicas(topic, each)[0] == leaders.own:
                partitions.append(DescribeLogDirsPartition(partition_index=each.index, partition_size=each.size_bytes))
        if partitions:
            yield DescribeLogDirsTopic(name=name, partitions=partitions)


API = Api(request=DescribeLogDirsRequest, response=DescribeLogDirsResponse, serve=serve, answers_at_length=True)
