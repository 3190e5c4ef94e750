"""EndTxn (key 26): commit or abort a transaction; from version 5 the response bumps the epoch (KIP-890)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import BOOL, ERROR_CODE, INT16, INT32, INT64, STRING, field, request, response


@request(26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)


@response(26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    producer_id: int = field(INT64, "5+", default=-1)
    producer_epoch: int = field(INT16, "5+", default=-1)
