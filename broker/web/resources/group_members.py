"""Members of a consumer group as HTTP shows them; of a group of the consumer protocol (KIP-848) how far each has come
in a reconciliation."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.classic.subscriptions import assigned_partitions
from pqbroker.broker.services.coordination.coordinators import DescribedGroup
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.member import ModernMember
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, nullable, object_of
from pqbroker.storage.tablets.coordinator_rows import MemberImage

_ASSIGNED = array_of(object_of({"topic": TEXT, "partitions": array_of(COUNT)}))
_RECONCILIATION = object_of(
    {"state": TEXT, "epoch": {"type": "integer"}, "revoking": _ASSIGNED, "target": _ASSIGNED}
)
_SUBSCRIPTION = object_of(
    {"topics": array_of(TEXT), "expression": nullable(TEXT), "assignor": nullable(TEXT), "rack_id": nullable(TEXT)}
)
MEMBER = object_of(
    {
        "id": TEXT, "instance_id": nullable(TEXT), "client_id": TEXT, "host": TEXT, "assignment": nullable(_ASSIGNED),
        "reconciliation": nullable(_RECONCILIATION), "subscription": nullable(_SUBSCRIPTION),
    }
)  # fmt: skip
MEMBER_EXAMPLE = {
    "id": "kcat-1", "instance_id": None, "client_id": "kcat", "host": "10.0.0.7",
    "assignment": [{"topic": "orders", "partitions": [0]}],
    "reconciliation": {
        "state": "UnreleasedPartitions", "epoch": 4, "revoking": [],
        "target": [{"topic": "orders", "partitions": [0, 1]}],
    },
    "subscription": {"topics": ["orders"], "expression": None, "assignor": None, "rack_id": None},
}  # fmt: skip
"""A member that waits for another to let go of a partition."""


async def members(call: Call, group: DescribedGroup) -> dict[str, Any]:
    """Return a page of members, by id, and where the next one begins."""
    found = sorted(group.image.members, key=lambda member: member.member_id)
    behind = bisect_right(found, call.query.get("members_after", ""), key=lambda member: member.member_id)
    page, has_more = call.page(found[behind:])
    told = []
    for member in page:
        await call.node.turns.breathe()  # one may have thousands of partitions
        told.append(_member(call, group, member))
    return {"members": told, "members_next": page[-1].member_id if has_more else None}


def _member(call: Call, group: DescribedGroup, member: MemberImage) -> dict[str, Any]:
    facts = {
        "id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
    }
    reconciled = _modern_member(call, group, member.member_id)
    if reconciled is None:
        return {**facts, "assignment": _classic_assignment(group, member), "reconciliation": None, "subscription": None}
    current, said = reconciled.current, reconciled.subscription
    return {
        **facts,
        "assignment": _by_name(call, current.assigned),
        "reconciliation": {
            "state": current.state,
            "epoch": current.epoch,
            "revoking": _by_name(call, current.revoking),
            "target": _by_name(call, reconciled.target),
        },
        "subscription": {
            "topics": sorted(said.topics),
            "expression": said.expression or None,
            "assignor": said.assignor,
            "rack_id": said.rack_id,
        },
    }


def modern_group(call: Call, group_id: str) -> ModernGroup | None:
    """Return a group of the consumer protocol; None for another."""
    return call.node.cell.current.coordinators.modern_group(group_id)


def _modern_member(call: Call, group: DescribedGroup, member_id: str) -> ModernMember | None:
    """Return a member as it is now; it may have left while the page was made."""
    found = modern_group(call, group.image.group_id)
    return None if found is None else found.members.get(member_id)


def _classic_assignment(group: DescribedGroup, member: MemberImage) -> list[dict[str, Any]] | None:
    """Return a member's partitions; None during a rebalance, and for what only the group's own programs can read."""
    if group.state is not GroupState.STABLE:
        return None
    assigned = assigned_partitions(group.image.protocol_type, member.assignment)
    if assigned is None:
        return None
    return [{"topic": each.topic, "partitions": each.partitions} for each in assigned]


def _by_name(call: Call, partitions: Mapping[bytes, Iterable[int]]) -> list[dict[str, Any]]:
    """Return partitions by the name of their topic; those of deleted topics are left out."""
    topics = call.node.cell.current.topics
    found = ((topics.by_id(topic_id), indexes) for topic_id, indexes in partitions.items())
    named = [(topic.record.name, sorted(indexes)) for topic, indexes in found if topic is not None]
    return [{"topic": name, "partitions": indexes} for name, indexes in sorted(named)]
