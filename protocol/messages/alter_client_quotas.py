"""AlterClientQuotas (key 49): change quotas of clients and users (KIP-546)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import BOOL, ERROR_CODE, FLOAT64, INT32, STRING, array, field, request, response, struct


@struct
class EntityData:
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")


@struct
class OpData:
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


@struct
class EntryData:
    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


@request(49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[EntryData] = field(array(EntryData))
    validate_only: bool = field(BOOL)


@struct
class EntryResult:
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+")
    entity: list[EntityData] = field(array(EntityData))


@response(49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = field(INT32)
    entries: list[EntryResult] = field(array(EntryResult))
