"""Why a partition neither takes nor gives records, as the errors that clients see."""

from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.unreadable import StoredUnreadable


def not_leader() -> KafkaError:
    """Its tablet runs elsewhere, or not at all."""
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is not served here now")


def unreadable(code: ErrorCode, cause: StoredUnreadable) -> KafkaError:
    """What is stored of it cannot be read."""
    return KafkaError(code, f"the partition is refused, what is stored of it is damaged: {cause}")
