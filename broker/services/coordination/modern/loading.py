"""Groups of KIP-848 as they were stored."""

from collections.abc import Iterable

from pqbroker.broker.services.coordination.classic.memory import payer_of
from pqbroker.broker.services.coordination.classic.messages import GroupLimits
from pqbroker.broker.services.coordination.modern.group import ModernGroup, Unstored
from pqbroker.broker.services.coordination.modern.member import ModernMember
from pqbroker.storage.tablets.modern_group_rows import (
    CurrentAssignment,
    ModernGroupImage,
    StoredAssignment,
    StoredModernMember,
)

StoredPart = ModernGroupImage | StoredModernMember | StoredAssignment


def loaded_groups(stored: Iterable[StoredPart], limits: GroupLimits) -> list[ModernGroup]:
    """Return the groups, with members whose sessions have not begun. What belongs to no group or member is left out."""
    images: dict[str, ModernGroupImage] = {}
    said: dict[str, list[StoredModernMember]] = {}
    reached: dict[tuple[str, str], StoredAssignment] = {}
    for part in stored:
        if isinstance(part, ModernGroupImage):
            images[part.group_id] = part
        elif isinstance(part, StoredModernMember):
            said.setdefault(part.group_id, []).append(part)
        else:
            reached[part.group_id, part.member_id] = part
    return [_group(image, said.get(group_id, []), reached, limits) for group_id, image in images.items()]


def _group(
    image: ModernGroupImage, members: list[StoredModernMember], reached: dict[tuple[str, str], StoredAssignment],
    limits: GroupLimits,
) -> ModernGroup:  # fmt: skip
    payer = payer_of(members[0].subscription.client_host) if members else ""
    group = ModernGroup(image.group_id, limits, payer)
    group.epoch, group.assignment_epoch = image.epoch, image.assignment_epoch
    group.assigned_ms, group.topics_hash = image.assigned_ms, image.topics_hash
    group.state_since_ms, group.is_known_empty = image.state_since_ms, not members
    group.set_expressions(dict(image.expressions))
    for stored in members:
        member = ModernMember(stored.member_id, stored.subscription, CurrentAssignment())
        assignment = reached.get((stored.group_id, stored.member_id))
        if assignment is not None:
            member.current, member.target = assignment.current, assignment.target
        group.add(member)
    group.unstored = Unstored()
    group.is_stored = True
    return group
