"""AddOffsetsToTxn (key 25): take a group's offsets into a transaction (KIP-98)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT16, INT32, INT64, STRING, field, request, response


@request(25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


@response(25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
