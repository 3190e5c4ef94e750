"""Changes of groups of KIP-848 as rows of a coordinator tablet."""

from pqbroker.broker.services.coordination.modern.group import ModernGroup, Unstored
from pqbroker.storage.tablets.coordinator_rows import GROUP_ROWS
from pqbroker.storage.tablets.modern_group_rows import (
    MODERN_ASSIGNMENT_ROWS,
    MODERN_GROUP_ROWS,
    MODERN_MEMBER_ROWS,
    MODERN_ROWS,
    assignment_row,
    modern_group_row,
    modern_member_row,
)
from pqbroker.storage.tablets.row_sets import RowChanges

_PARTS = (MODERN_MEMBER_ROWS, MODERN_ASSIGNMENT_ROWS)


def put_changes(changes: RowChanges, group: ModernGroup, unstored: Unstored) -> None:
    """Put what a group has become; its first row takes the place of a classic group's."""
    group_id = group.group_id
    if not group.is_stored:
        GROUP_ROWS.delete(changes, group_id)
        delete_rows(changes, group_id)
    # Changes of several groups may be put together.
    created = {operation[1] for operation in changes.operations}
    for rows in MODERN_ROWS:
        if rows.row_set not in created:
            rows.create_if_missing(changes)
    if unstored.is_group_changed or not group.is_stored:
        changes.put(MODERN_GROUP_ROWS.row_set, (group_id,), modern_group_row(group.image()))
    for member_id in unstored.gone:
        for rows in _PARTS:
            changes.delete(rows.row_set, (group_id, member_id))
    for member_id in unstored.members & group.members.keys():
        row = modern_member_row(group.members[member_id].subscription)
        changes.put(MODERN_MEMBER_ROWS.row_set, (group_id, member_id), row)
    for member_id in unstored.assignments & group.members.keys():
        member = group.members[member_id]
        row = assignment_row(member.current, member.target)
        changes.put(MODERN_ASSIGNMENT_ROWS.row_set, (group_id, member_id), row)


def delete_rows(changes: RowChanges, group_id: str) -> None:
    """Delete every row of a group."""
    MODERN_GROUP_ROWS.delete(changes, group_id)
    for rows in _PARTS:
        stored = changes.row_sets.get(rows.row_set)
        for key in () if stored is None else stored.rows.irange((group_id,)):
            if key[0] != group_id:
                break
            changes.delete(rows.row_set, key)
