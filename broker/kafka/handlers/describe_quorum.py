"""DescribeQuorum (key 55), versions 0 to 2.

Behaviour: of partition 0 of __cluster_metadata, this node is the only voter and leads; its address is chosen as
Metadata's is. As in Kafka every other partition is UNKNOWN_TOPIC_OR_PARTITION, and so is this one if others are asked
for beside it.
Left out: the log of metadata. The scheme keeps what Kafka keeps there and has no offsets, so epoch and offsets are 0.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.topic_names import CLUSTER_METADATA
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

LISTENER = "CONTROLLER"
NOT_HERE = "This server does not host this topic-partition."


def serve(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    check_access(context, AclOperation.DESCRIBE)
    if not _is_of_metadata(request):
        return DescribeQuorumResponse(topics=each(request.topics, _unknown))
    node_id, now_ms = context.node.leaders.controller, context.node.clock()
    voter = ReplicaState(replica_id=node_id, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    host, port = context.address_of(node_id)
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=CLUSTER_METADATA, partitions=[PartitionData(leader_id=node_id, current_voters=[voter])]
            )
        ],
        nodes=[Node(node_id=node_id, listeners=[Listener(name=LISTENER, host=host, port=port)])],
    )


def _is_of_metadata(request: DescribeQuorumRequest) -> bool:
    if len(request.topics) != 1:
        return False
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    return asked == [(CLUSTER_METADATA, [0])]


def _unknown(topic: AskedTopic) -> TopicData:
    return TopicData(topic_name=topic.topic_name, partitions=each(topic.partitions, _unknown_partition))


def _unknown_partition(asked: AskedPartition) -> PartitionData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PartitionData(partition_index=asked.partition_index, error_code=code, error_message=NOT_HERE)


API = Api(request=DescribeQuorumRequest, response=DescribeQuorumResponse, serve=serve)
