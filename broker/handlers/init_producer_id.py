"""InitProducerId (key 22), versions 0 to 5.

Behaviour: a new producer id with epoch 0, from a block that the scheme has made durable; an id is never given twice.
As in Kafka, an id and epoch that an idempotent producer sends along (KIP-360) change nothing: it gets a new id.
Left out: transactions. A transactional id is refused with UNSUPPORTED_VERSION: Java's producer takes any code outside
its list of retriable ones as fatal and names this one, librdkafka and aiokafka raise it; nobody waits or asks again.
"""

from collections.abc import Awaitable

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def serve(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "this broker serves no transactions yet")
    producer_id = context.node.producer_ids.take()
    if producer_id is None:
        return _from_next_block(context)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def refuse(
    context: Context, request: InitProducerIdRequest, code: ErrorCode, message: str
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


async def _from_next_block(context: Context) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        producer_id=await context.node.producer_ids.take_from_next_block(), producer_epoch=0
    )


API = Api(
    key=22, name="InitProducerId", version_min=0, version_max=5,
    request=InitProducerIdRequest, response=InitProducerIdResponse, serve=serve, refuse=refuse,
)  # fmt: skip
