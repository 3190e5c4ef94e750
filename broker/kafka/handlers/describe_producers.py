"""DescribeProducers (key 61), versions 0 to 0.

Behaviour: the idempotent producers that each partition remembers, with the last sequence taken (-1: none in its epoch)
and the largest timestamp of the batch that had it (-1: written before an upgrade to the version that stores it); the
first offset of its open transaction and the epoch of the coordinator that sent its last marker, -1 without them. What
is named twice is answered twice, as in Kafka.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_loaded
from pqbroker.pq.log.producers import Producer, TransactionalState
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pqbroker.protocol.schema import INT32_MAX

_NO_TRANSACTIONS = TransactionalState()


def serve(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=each(
            request.topics,
            lambda asked: TopicResponse(
                name=asked.name,
                partitions=each(asked.partition_indexes, lambda index: _describe(context, asked.name, index)),
            ),
        )
    )


def refuse(
    context: Context, request: DescribeProducersRequest, code: ErrorCode, message: str
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=each(
            request.topics,
            lambda asked: TopicResponse(
                name=asked.name, partitions=each(asked.partition_indexes, lambda index: _refused(index, code, message))
            ),
        )
    )


def _describe(context: Context, topic: str, index: int) -> PartitionResponse:
    try:
        partition = find_loaded(find_topic(context, AclOperation.READ, topic), index)
    except KafkaError as error:
        return _refused(index, error.code, error.message)
    active = each(list(partition.state.producers), lambda item: _state(*item))
    return PartitionResponse(partition_index=index, active_producers=active)


def _state(producer_id: int, producer: Producer) -> ProducerState:
    transactional = producer.transactional or _NO_TRANSACTIONS
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last & INT32_MAX if producer.batches else -1,
        last_timestamp=producer.timestamp_ms,
        coordinator_epoch=transactional.coordinator_epoch,
        current_txn_start_offset=transactional.open_offset,
    )


def _refused(index: int, code: ErrorCode, message: str) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, error_message=message)


API = Api(
    request=DescribeProducersRequest, response=DescribeProducersResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
