"""Kafka errors that stand for what the store answers, for each kind of write: the one its clients try again after; and
for a partition that neither takes nor gives records."""

from typing import Final, NamedTuple

from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.unreadable import StoredUnreadable

DISK_FULL: Final = "the disk is full: it takes writes again once retention, DeleteRecords or you have made room"
_CELL_LOST = "the cell was lost and is being opened again; retry"


class StoreCodes(NamedTuple):
    """Codes for a write that was refused, so that nothing of it is stored, and for one whose outcome nobody knows."""

    refused: ErrorCode
    lost: ErrorCode
    lost_text: str = _CELL_LOST


RECORDS: Final = StoreCodes(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the tablet was lost")
"""Records of a partition: the client looks for the partition's leader."""
GROUPS: Final = StoreCodes(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
"""Members and offsets of a consumer group: the client looks for its coordinator."""
PRODUCER_IDS: Final = StoreCodes(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Blocks of producer ids: every other code makes some client give up."""
CHANGES: Final = StoreCodes(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
"""All else: topics, configs, deletions."""


def store_refusal(error: BaseException, codes: StoreCodes) -> KafkaError | None:
    """The error for the client; None: it is no answer of the store."""
    if isinstance(error, CommitRefused):
        return KafkaError(codes.refused, f"the store refused the write: {error}")
    if isinstance(error, ShardLost):
        return KafkaError(codes.lost, codes.lost_text)
    return None


def not_leader() -> KafkaError:
    """The partition's tablet runs elsewhere, or not at all."""
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is not served here now")


def unreadable(code: ErrorCode, cause: StoredUnreadable) -> KafkaError:
    """Return the error of a partition whose stored data is unreadable."""
    return KafkaError(code, f"the partition is refused, what is stored of it is damaged: {cause}")
