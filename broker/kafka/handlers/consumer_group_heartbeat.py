"""ConsumerGroupHeartbeat (key 68), versions 0 to 1.

Behaviour: UNSUPPORTED_VERSION, as Kafka answers where `group.coordinator.rebalance.protocols` leaves the protocol out.
Clients take it as final and name `group.protocol`; where the API is missing, a librdkafka consumer with
`group.protocol=consumer` waits for ever without an error.
Left out: consumer groups of KIP-848.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def serve(context: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    raise KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        "this broker does not serve the consumer group protocol of KIP-848; set group.protocol=classic",
    )


def refuse(
    context: Context, request: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


API = Api(
    key=68, name="ConsumerGroupHeartbeat", version_min=0, version_max=1,
    request=ConsumerGroupHeartbeatRequest, response=ConsumerGroupHeartbeatResponse, serve=serve, refuse=refuse,
)  # fmt: skip
