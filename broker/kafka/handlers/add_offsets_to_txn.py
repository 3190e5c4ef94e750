"""AddOffsetsToTxn (key 25), versions 0 to 4.

Behaviour: a group's offsets may be committed in the producer's transaction from then on (TxnOffsetCommit); durable
before the answer. Right behind an end it waits as AddPartitionsToTxn does.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.transactional_requests import FENCED_AS_EPOCH, UNCHANGED, producers_of, with_codes
from pqbroker.broker.services.transactional_producers.rules import Addition, Claim
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM_VERSION = 2


async def serve(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    producers = producers_of(context, request.transactional_id, AclOperation.WRITE)
    check_access(context, AclOperation.READ, AclResource(AclKind.GROUP, request.group_id))
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    claim = Claim(request.producer_id, request.producer_epoch)
    addition = Addition(groups=frozenset({request.group_id}))
    codes = FENCED_AS_EPOCH if context.version < _FENCED_FROM_VERSION else UNCHANGED
    await with_codes(codes, producers.add(request.transactional_id, claim, addition))
    return AddOffsetsToTxnResponse()


API = Api(request=AddOffsetsToTxnRequest, response=AddOffsetsToTxnResponse, serve=serve)
