"""Refreshes of the regular expressions of groups: one at a time for each group, begun by a heartbeat of a member."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.coordination.modern.expressions import due_expressions, put_resolved
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.messages import KnownTopics
from pqbroker.broker.services.coordination.modern.topics_read import hash_ahead
from pqbroker.broker.services.coordination.topic_expressions import TopicExpressions

log = logging.getLogger(__name__)

MayDescribe = Callable[[str], bool]
"""Returns True for a topic that the member may describe, whose heartbeat begins a refresh."""


@dataclass(frozen=True, slots=True)
class RefreshParts:
    """Parts of the node that refreshes read."""

    expressions: TopicExpressions
    topics: KnownTopics
    interval_ms: int
    """group.consumer.regex.refresh.interval.ms"""
    turns: Turns
    clock: Callable[[], int]
    """Milliseconds since 1970."""


class ExpressionRefreshes:
    """The refreshes of the groups of one coordinator tablet. `changed` is called with a group that a refresh may have
    changed."""

    def __init__(self, parts: RefreshParts, changed: Callable[[ModernGroup], None]) -> None:
        self._parts = parts
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._running: dict[ModernGroup, asyncio.Task[None]] = {}

    def begin_if_due(self, group: ModernGroup, may_describe: MayDescribe) -> None:
        """Begin a refresh if one is due and none is running."""
        if not group.expression_counts or group in self._running:
            return
        parts = self._parts
        texts = due_expressions(group, parts.topics.version, parts.clock(), parts.interval_ms)
        if texts:
            task = self._loop.create_task(self._refresh(group, texts, may_describe))
            self._running[group] = task
            task.add_done_callback(partial(self._ended, group))

    def close(self) -> None:
        """End every refresh; the next heartbeat begins it again."""
        for task in self._running.values():
            task.cancel()
        self._running.clear()

    async def _refresh(self, group: ModernGroup, texts: set[str], may_describe: MayDescribe) -> None:
        parts = self._parts
        version = parts.topics.version
        steps = await parts.expressions.resolve(texts, may_describe)
        found = await parts.turns.finish(steps)
        for names in found.values():
            await parts.turns.finish(hash_ahead(names, parts.topics))
        for text in put_resolved(group, found, parts.topics, version, parts.clock()):
            log.warning(
                "group %s reads no new topics by the expression %.100s: it matches more than the group has room for; "
                "subscribe to less, or raise pqbroker.group.metadata.bytes.max or pqbroker.groups.bytes.max",
                group.group_id, text,
            )  # fmt: skip

    def _ended(self, group: ModernGroup, task: "asyncio.Task[None]") -> None:
        if self._running.get(group) is task:
            del self._running[group]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("expressions of group %s were not resolved; a defect", group.group_id, exc_info=error)
        else:
            self._changed(group)
