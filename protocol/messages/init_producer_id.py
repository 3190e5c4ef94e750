"""InitProducerId (key 22): a producer id and epoch. Version 6 (KIP-939) is unstable in Kafka and left out."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT16, INT32, INT64, STRING, field, request, response


@request(22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = field(STRING, nullable="0+")
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, "3+", default=-1)
    producer_epoch: int = field(INT16, "3+", default=-1)


@response(22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
