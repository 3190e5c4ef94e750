"""Members leave, or an administrator removes them; several at once are one rebalance (KIP-345)."""

from collections.abc import Sequence

from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.messages import Joined, Leaver, Synced
from pqbroker.broker.services.coordination.classic.rebalance import finish_if_all_joined, rebalance
from pqbroker.protocol.errors import ErrorCode, KafkaError


def leave(group: Group, leavers: Sequence[Leaver], now_ms: int) -> list[ErrorCode]:
    """Remove the leavers. Return what became of each, in their order."""
    members = len(group.members)
    results = [_remove(group, leaver) for leaver in leavers]
    if len(group.members) < members:
        rebalance(group, now_ms)
    else:
        finish_if_all_joined(group, now_ms)  # one less may be waited for
    return results


def end(group: Group, error: ErrorCode) -> None:
    """Answer all that waits: this instance of the group ends."""
    for member in group.members.values():
        group.answer_join(member, Joined(error, member.member_id))
        group.answer_sync(member, Synced(error))


def _remove(group: Group, leaver: Leaver) -> ErrorCode:
    if group.forget_pending(leaver.member_id):
        return ErrorCode.NONE
    member_id = leaver.member_id
    if not member_id and leaver.instance_id is not None:
        member_id = group.instances.get(leaver.instance_id, "")
    try:
        group.remove(group.known_member(member_id, leaver.instance_id).member_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
