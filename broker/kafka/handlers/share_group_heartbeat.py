"""ShareGroupHeartbeat (key 76), versions 1 to 1.

Behaviour: UNSUPPORTED_VERSION, as Kafka answers where the feature `share.version` is off. A share consumer takes it as
final; where the API is missing, it waits for ever without an error.
Left out: share groups (KIP-932).
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def serve(context: Context, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    raise KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, "this broker does not serve share groups; consume with a consumer group"
    )


def refuse(
    context: Context, request: ShareGroupHeartbeatRequest, code: ErrorCode, message: str
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message)


API = Api(
    key=76, name="ShareGroupHeartbeat", version_min=1, version_max=1,
    request=ShareGroupHeartbeatRequest, response=ShareGroupHeartbeatResponse, serve=serve, refuse=refuse,
)  # fmt: skip
