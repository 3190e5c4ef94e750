"""InitProducerId (key 22), versions 0 to 5.

Behaviour: a new producer id with epoch 0, from a block that the scheme has made durable; an id is never given twice.
As in Kafka, an id and epoch that an idempotent producer sends along (KIP-360) change nothing: it gets a new id; one of
them alone is INVALID_REQUEST. When no block is available now, COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: every client
asks again for that, while aiokafka and older Java clients take a storage error for final.
With a transactional id the producer keeps its id and gets the next epoch, which fences earlier ones; behind the last
epoch it gets a new id. An open transaction is aborted first, and the answer is CONCURRENT_TRANSACTIONS until that is
done. A producer that sends its id and epoch (version 3) is fenced where they are not the last ones given. A timeout
over transaction.max.timeout.ms is INVALID_TRANSACTION_TIMEOUT.
Left out: two-phase commits (version 6, KIP-939).
"""

from collections.abc import Awaitable

from pqbroker.broker.ground.access import AclKind, AclOperation, check_access, is_allowed_on_any
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.transactional_requests import (
    FENCED_AS_EPOCH,
    UNCHANGED,
    producers_of,
    take_producer_id,
    with_codes,
)
from pqbroker.broker.services.transactional_producers.rules import Claim, Initialisation, claim_after
from pqbroker.conf.shares import address_of
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_FROM_VERSION = 4


def serve(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch are sent together, or neither")
    if request.transactional_id is not None:
        return _initialise(context, request, request.transactional_id)
    if not is_allowed_on_any(context, AclOperation.WRITE, AclKind.TOPIC):
        check_access(context, AclOperation.IDEMPOTENT_WRITE)  # who may write to a topic may do so once (KIP-679)
    producer_id = context.node.producer_ids.take()
    if producer_id is None:
        return _from_next_block(context)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def refuse(
    context: Context, request: InitProducerIdRequest, code: ErrorCode, message: str
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


async def _from_next_block(context: Context) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await take_producer_id(context), producer_epoch=0)


async def _initialise(
    context: Context, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    producers = producers_of(context, transactional_id, AclOperation.WRITE)
    asked = Initialisation(
        request.transaction_timeout_ms,
        Claim(request.producer_id, request.producer_epoch),
        await take_producer_id(context),
        address_of(context.peer.holder),
    )
    codes = FENCED_AS_EPOCH if context.version < _FENCED_FROM_VERSION else UNCHANGED
    given = claim_after(await with_codes(codes, producers.initialise(transactional_id, asked)))
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.epoch)


API = Api(request=InitProducerIdRequest, response=InitProducerIdResponse, serve=serve, refuse=refuse)
