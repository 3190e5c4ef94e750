"""Signs of life: heartbeats, and offset commits, which count as such (clients 4.33, 4.34)."""

from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode, KafkaError


def heartbeat(group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
    """KafkaError 25, 82, 22; REBALANCE_IN_PROGRESS asks a living member to join again."""
    member = group.known_member(member_id, instance_id)
    if generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if not member.is_new:
        group.renew(member, now_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def check_commit(group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
    """Check that offsets may be committed: by a member of this generation, or by anyone while there are no members.

    Raise KafkaError 25, 82, 22; REBALANCE_IN_PROGRESS while the generation has no assignment yet.
    """
    is_simple = generation < 0
    if is_simple and group.state is GroupState.EMPTY:
        return
    if is_simple and not member_id and instance_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has members: commit as one of them")
    member = group.known_member(member_id, instance_id)
    if generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if not member.is_new:
        group.renew(member, now_ms)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def check_transactional_commit(
    group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> None:
    """Check that offsets may be committed in a transaction: by a member of this generation, whatever the state of the
    group, or by a client that names none. Raise KafkaError 25, 82, 22."""
    if generation < 0 and not member_id and instance_id is None:
        return
    if generation < 0 and group.state is GroupState.EMPTY:
        return
    member = group.known_member(member_id, instance_id)
    if generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if not member.is_new:
        group.renew(member, now_ms)
