"""DescribeTransactions (key 65): state of transactions (KIP-664)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT16, INT32, INT64, STRING, array, field, request, response, struct


@request(65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = field(array(STRING))


@struct
class TopicData:
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct
class TransactionState:
    error_code: ErrorCode = field(ERROR_CODE)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TopicData] = field(array(TopicData))


@response(65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = field(INT32)
    transaction_states: list[TransactionState] = field(array(TransactionState))
