"""AlterReplicaLogDirs (key 34), versions 1 to 2.

Behaviour: a partition may be moved to the directory (pool) that its records go to: done at once. A directory that this
broker does not have is LOG_DIR_NOT_FOUND, a partition that is not here UNKNOWN_TOPIC_OR_PARTITION. As in Kafka a
partition that is named for several directories has the last of them, and one answer.
Left out: moves to another pool. A tablet moves with all its partitions (`pqbroker tablet move`), so they are
INVALID_REPLICA_ASSIGNMENT.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def serve(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    check_access(context, AclOperation.ALTER)
    pools = {pool.directory: pool.name for pool in context.node.pools()}
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        await context.breathe()
        for topic in directory.topics:
            await context.breathe()
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    return AlterReplicaLogDirsResponse(
        results=each(
            list(wanted.items()),
            lambda topic: AlterReplicaLogDirTopicResult(
                topic_name=topic[0],
                partitions=each(
                    list(topic[1].items()),
                    lambda item: AlterReplicaLogDirPartitionResult(
                        partition_index=item[0], error_code=_answer(context, topic[0], item[0], pools.get(item[1]))
                    ),
                ),
            ),
        )
    )


def refuse(
    context: Context, request: AlterReplicaLogDirsRequest, code: ErrorCode, message: str
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=each(
            [topic for directory in request.dirs for topic in directory.topics],
            lambda topic: AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=each(
                    topic.partitions,
                    lambda index: AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code),
                ),
            ),
        )
    )


def _answer(context: Context, topic: str, index: int, pool: str | None) -> ErrorCode:
    try:
        _check(context, topic, index, pool)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _check(context: Context, topic: str, index: int, pool: str | None) -> None:
    if pool is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
    partition = find_partition(find_topic(context, None, topic), index)
    if partition.pool != pool:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT)


API = Api(request=AlterReplicaLogDirsRequest, response=AlterReplicaLogDirsResponse, serve=serve, refuse=refuse)
