"""Kafka errors for what went wrong (semantics G.5): the one place for refusals of the lower floors."""

import logging
from collections.abc import Mapping

from pqbroker.conf.declare import ConfigError
from pqbroker.pq.serving.partition_limit import TooManyPartitions
from pqbroker.pq.serving.store_refusals import CHANGES, store_refusal
from pqbroker.pq.serving.topics import TopicIsFeed
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.bundles.placement import NoHealthyCell
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.tablets.scheme_topics import PartitionsNotGrown, PartitionsRefused, TopicExists, TopicUnknown

_CODES: Mapping[type[Exception], ErrorCode] = {
    ConfigError: ErrorCode.INVALID_CONFIG,
    NoHealthyCell: ErrorCode.POLICY_VIOLATION,
    PartitionsNotGrown: ErrorCode.INVALID_PARTITIONS,
    PartitionsRefused: ErrorCode.INVALID_PARTITIONS,
    TopicIsFeed: ErrorCode.POLICY_VIOLATION,
    TooManyPartitions: ErrorCode.POLICY_VIOLATION,  # every client takes it as final
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    TopicUnknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
REFUSED: tuple[type[Exception], ...] = (KafkaError, CommitRefused, ShardLost, *_CODES)
"""Exceptions that a handler of several things turns into the error of one of them."""

log = logging.getLogger(__name__)


def translate(error: BaseException) -> tuple[ErrorCode, str]:
    """Return code and text for the client. An unforeseen error is logged with its traceback."""
    refusal = error if isinstance(error, KafkaError) else store_refusal(error, CHANGES)
    if refusal is not None:
        return refusal.code, refusal.message
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code, str(error)
    log.error("a request failed; its client gets UNKNOWN_SERVER_ERROR", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why"
