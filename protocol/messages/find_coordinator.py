"""FindCoordinator (key 10): the broker that coordinates a group or transaction; several from version 4 (KIP-699)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT8, INT32, STRING, array, field, request, response, struct


@request(10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = field(STRING, "0-3")
    key_type: int = field(INT8, "1+")
    coordinator_keys: list[str] = field(array(STRING), "4+")


@struct
class Coordinator:
    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="4+", default=None)


@response(10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = field(INT32, "1+")
    error_code: ErrorCode = field(ERROR_CODE, "0-3")
    error_message: str | None = field(STRING, "1-3", nullable="1-3", default=None)
    node_id: int = field(INT32, "0-3")
    host: str = field(STRING, "0-3")
    port: int = field(INT32, "0-3")
    coordinators: list[Coordinator] = field(array(Coordinator), "4+")
