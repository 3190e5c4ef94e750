"""Which Kafka error stands for what went wrong (semantics G.5)."""

import logging

from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost

REFUSED = (KafkaError, CommitRefused, ShardLost)
"""What a handler that answers for several things turns into the error of one of them."""

log = logging.getLogger(__name__)


def translate(error: BaseException) -> tuple[ErrorCode, str]:
    """Code and text for the client. What nobody foresaw is logged with its traceback."""
    if isinstance(error, KafkaError):
        return error.code, error.message
    if isinstance(error, CommitRefused):
        return ErrorCode.KAFKA_STORAGE_ERROR, f"the store refused the write: {error}"
    if isinstance(error, ShardLost):
        return ErrorCode.KAFKA_STORAGE_ERROR, "the cell was lost and is being opened again; retry"
    log.error("a request failed", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why"
