"""InitProducerId (key 22), versions 0 to 5.

Behaviour: a new producer id with epoch 0, from a block that the scheme has made durable; an id is never given twice.
As in Kafka, an id and epoch that an idempotent producer sends along (KIP-360) change nothing: it gets a new id; one of
them alone is INVALID_REQUEST. When no
block is available now, COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: every client asks again for that, while aiokafka and
older Java clients take a storage error for final.
Left out: transactions. A transactional id is refused with INVALID_TRANSACTION_TIMEOUT: no timeout is short enough
for a broker without transactions. UNSUPPORTED_VERSION or INVALID_REQUEST would say it better, but librdkafka asks
again for ever on those (rdkafka_idempotence.c has the codes it gives up on); Java, librdkafka, aiokafka and
kafka-python all take this one as final at once. The log names the cause.
"""

import logging
from collections.abc import Awaitable

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access, is_allowed
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.pq.serving.store_refusals import PRODUCER_IDS, store_refusal
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pqbroker.storage.engine import CommitRefused, ShardLost

seldom = SeldomLog(logging.getLogger(__name__))

NO_TRANSACTIONS = (
    "client %.100r at %s: transactional.id %.100r is refused, as this broker serves no transactions yet; its error "
    "speaks of a time-out, the one that every client takes as final. Turn off what needs them: transactional.id, "
    "exactly_once_v2 of Streams, exactly.once.source.support of Connect"
)


def serve(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        resource = AclResource(AclKind.TRANSACTIONAL_ID, request.transactional_id)
        check_access(context, AclOperation.WRITE, resource)
        seldom.warning(NO_TRANSACTIONS, context.client_id, context.peer.host, request.transactional_id)
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "this broker serves no transactions yet")
    if not is_allowed(context, AclOperation.IDEMPOTENT_WRITE) and not every_topic(context, AclOperation.WRITE):
        check_access(context, AclOperation.IDEMPOTENT_WRITE)  # who may write to a topic may do so once (KIP-679)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch are sent together, or neither")
    producer_id = context.node.producer_ids.take()
    if producer_id is None:
        return _from_next_block(context)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def refuse(
    context: Context, request: InitProducerIdRequest, code: ErrorCode, message: str
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


async def _from_next_block(context: Context) -> InitProducerIdResponse:
    try:
        producer_id = await context.node.producer_ids.take_from_next_block()
    except (CommitRefused, ShardLost) as error:
        raise store_refusal(error, PRODUCER_IDS) or error from error
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


API = Api(request=InitProducerIdRequest, response=InitProducerIdResponse, serve=serve, refuse=refuse)
