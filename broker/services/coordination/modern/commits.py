"""Checks of commits and reads of offsets in a group of KIP-848: by a member in its epoch, or by anyone while it has no
members.

A commit of an earlier epoch counts for partitions that the member has had since then or before (KIP-1251).
"""

from collections.abc import Iterable
from typing import Final

from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.member import ModernMember
from pqbroker.protocol.errors import ErrorCode, KafkaError

EPOCHS_FROM_VERSION: Final = 9
"""First version of OffsetCommit whose generation is an epoch."""


class EpochFence:
    """A commit of an earlier epoch: each of its partitions has to be shown to it."""

    __slots__ = ("_epoch", "_member")

    def __init__(self, member: ModernMember, epoch: int) -> None:
        self._member = member
        self._epoch = epoch

    def check(self, partitions: Iterable[tuple[bytes, int]]) -> None:
        """Check that the member had these partitions in the epoch. KafkaError STALE_MEMBER_EPOCH, ILLEGAL_GENERATION
        for a member of the classic protocol."""
        current = self._member.current
        for topic_id, index in partitions:
            since = current.assigned.get(topic_id, {}).get(index)
            if since is None:
                since = current.revoking.get(topic_id, {}).get(index)
            if since is None:
                raise _stale(self._member, f"partition {index} of {topic_id.hex()} is not assigned to the member")
            if self._epoch < since:
                raise _stale(self._member, f"epoch {self._epoch} is older than the assignment of partition {index}")


def check_commit(group: ModernGroup, member_id: str, epoch: int, version: int) -> EpochFence | None:
    """Check that offsets may be committed so; return what each partition is to be shown to, None for nothing.

    KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, UNSUPPORTED_VERSION.
    """
    if epoch < 0 and not group.members:
        return None
    member = group.known_member(member_id)
    if member.subscription.classic is None and version < EPOCHS_FROM_VERSION:
        text = "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    return _fence(member, epoch)


def check_transactional_commit(
    group: ModernGroup, member_id: str, instance_id: str | None, epoch: int
) -> EpochFence | None:
    """Check the same for a commit in a transaction; a client that names neither member nor epoch always may."""
    if epoch < 0 and (not group.members or (not member_id and instance_id is None)):
        return None
    return _fence(group.known_member(member_id), epoch)


def check_read(group: ModernGroup, member_id: str | None, epoch: int) -> None:
    """Check that offsets may be read so. KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
    if member_id is None and epoch < 0:
        return
    member = group.known_member(member_id or "")
    if epoch != member.current.epoch:
        raise _stale(member, f"epoch {epoch} is not the member's, which is {member.current.epoch}")


def _fence(member: ModernMember, epoch: int) -> EpochFence | None:
    known = member.current.epoch
    if epoch > known:
        raise _stale(member, f"epoch {epoch} is newer than the member's, which is {known}")
    return None if epoch == known else EpochFence(member, epoch)


def _stale(member: ModernMember, text: str) -> KafkaError:
    is_classic = member.subscription.classic is not None
    return KafkaError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH, text)
