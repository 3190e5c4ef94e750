"""Regular expressions of a group: when they are to be resolved to topics, and what follows from it.

An expression is resolved when a member first subscribes by it. All of a group are resolved again when topics have come
or gone, and after the refresh interval, since permissions may have changed; but not within ten seconds, as in Kafka.
"""

from collections.abc import Mapping
from typing import Final

from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.member import topics_bytes
from pqbroker.broker.services.coordination.modern.messages import KnownTopics
from pqbroker.broker.services.coordination.modern.topics_read import follow_topics
from pqbroker.storage.tablets.modern_group_rows import ResolvedExpression

REFRESH_INTERVAL_MIN_MS: Final = 10_000
_NOTHING: Final = ResolvedExpression(frozenset(), 0)


def due_expressions(group: ModernGroup, topics_version: int, clock_ms: int, refresh_interval_ms: int) -> set[str]:
    """Return the expressions that are to be resolved now."""
    if not group.expression_counts:
        return set()
    passed_ms = clock_ms - max((each.resolved_ms for each in group.expressions.values()), default=0)
    # A clock that was set back must not keep a group from new topics.
    is_old = passed_ms < 0 or passed_ms > REFRESH_INTERVAL_MIN_MS
    if is_old and (group.expressions_version != topics_version or not 0 <= passed_ms < refresh_interval_ms):
        return set(group.expression_counts)
    return group.expression_counts.keys() - group.expressions.keys()


def put_resolved(
    group: ModernGroup, found: Mapping[str, frozenset[str]], topics: KnownTopics, topics_version: int, clock_ms: int
) -> list[str]:
    """Take over which topics match expressions; those that nobody subscribes by any more are left out.

    Return the expressions that match more than the group has room for: they stay at what they matched before.
    """
    too_large, has_changed = [], False
    for text in sorted(found.keys() & group.expression_counts.keys()):
        before = group.expressions.get(text, _NOTHING)
        topics_after = found[text]
        if not _has_room(group, topics_bytes(topics_after) - topics_bytes(before.topics)):
            too_large.append(text)
            topics_after = before.topics
        has_changed |= before.topics != topics_after
        group.set_expressions({**group.expressions, text: ResolvedExpression(topics_after, clock_ms)})
    if group.expressions.keys() == group.expression_counts.keys():
        group.expressions_version = topics_version
    if has_changed:
        group.note_group()
        follow_topics(group, topics, has_changed=True)
    return too_large


def _has_room(group: ModernGroup, more: int) -> bool:
    """Return True if topics of expressions may take more bytes by this number; fewer than before they always may."""
    taken = group.usage.metadata_bytes + group.expression_bytes
    return more <= 0 or (taken + more <= group.limits.metadata_bytes_max and group.usage.has_room(more))
