"""EndTxn (key 26), versions 0 to 5.

Behaviour: the decision is durable before the answer; markers and offsets are in the same commit, or follow. From
version 5 (KIP-890) each end gives the producer a new epoch, or a new producer id behind its last epoch, and a
transaction without anything in it may be aborted. An end that is sent again is answered as before,
CONCURRENT_TRANSACTIONS until its markers are written; the opposite one is INVALID_TXN_STATE.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.transactional_requests import (
    FENCED_AS_EPOCH,
    UNCHANGED,
    producers_of,
    take_producer_id,
    with_codes,
)
from pqbroker.broker.services.transactional_producers.rules import LAST_EPOCH, NO_PRODUCER_ID, Claim, End, claim_after
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

BUMPS_FROM_VERSION = 5
_FENCED_FROM_VERSION = 2


async def serve(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    producers = producers_of(context, request.transactional_id, AclOperation.WRITE)
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    bumps_epochs = context.version >= BUMPS_FROM_VERSION
    spare_id = NO_PRODUCER_ID
    if bumps_epochs and request.producer_epoch >= LAST_EPOCH:
        spare_id = await take_producer_id(context)
    claim = Claim(request.producer_id, request.producer_epoch)
    asked = End(request.committed, bumps_epochs, spare_id)
    codes = FENCED_AS_EPOCH if context.version < _FENCED_FROM_VERSION else UNCHANGED
    ended = await with_codes(codes, producers.end(request.transactional_id, claim, asked))
    if not bumps_epochs:
        return EndTxnResponse()
    following = claim_after(ended)
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)


API = Api(request=EndTxnRequest, response=EndTxnResponse, serve=serve)
