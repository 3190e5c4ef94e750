"""ShareGroupHeartbeat (key 76): a member of a share group joins, lives and leaves (KIP-932)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_group_heartbeat import Assignment
from pqbroker.protocol.schema import ERROR_CODE, INT32, STRING, array, field, request, response


@request(76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable="0+", default=None)


@response(76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(Assignment, nullable="0+")
