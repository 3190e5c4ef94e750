"""ElectLeaders (key 43), versions 0 to 2.

Behaviour: this node leads every partition, so there is nothing to elect: ELECTION_NOT_NEEDED for each partition that is
named, as Kafka says of a partition whose preferred replica leads. All partitions (null) elects none, and the answer
names every topic without partitions, as Kafka's does.
What is named twice is answered twice, as in Kafka.
Left out: elections. An election type that Kafka does not know is INVALID_REQUEST.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

PREFERRED = 0
UNCLEAN = 1


def serve(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    check_access(context, AclOperation.ALTER)
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type} is unknown")
    return ElectLeadersResponse(
        replica_election_results=each(
            _asked(context, request),
            lambda asked: ReplicaElectionResult(
                topic=asked.topic,
                partition_result=each(asked.partitions, lambda index: _answer(context, asked.topic, index)),
            ),
        )
    )


def _asked(context: Context, request: ElectLeadersRequest) -> list[TopicPartitions]:
    if request.topic_partitions is None:
        return [TopicPartitions(topic=name) for name in context.node.cell.current.topics.names()]
    return request.topic_partitions


def refuse(context: Context, request: ElectLeadersRequest, code: ErrorCode, message: str) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=each(
            request.topic_partitions or (),
            lambda asked: ReplicaElectionResult(
                topic=asked.topic,
                partition_result=each(asked.partitions, lambda index: _result(index, code, message)),
            ),
        ),
    )


def _answer(context: Context, topic: str, index: int) -> PartitionResult:
    try:
        find_partition(find_topic(context, None, topic), index)
    except KafkaError as error:
        return _result(index, error.code, error.message)
    return _result(index, ErrorCode.ELECTION_NOT_NEEDED, "the only replica leads the partition")


def _result(index: int, code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


API = Api(
    request=ElectLeadersRequest, response=ElectLeadersResponse, serve=serve, refuse=refuse, answers_at_length=True
)
