"""Classic groups of many members that become groups of KIP-848, built in slices of the loop's turns.

    classic --a member of the other protocol joins--> being built --unchanged meanwhile--> taken by the first who waits
                                                      '--changed--> classic, and all who wait begin again

Until it is taken the group is a classic one. One of few members is built in the call that asks for it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.messages import KnownTopics
from pqbroker.broker.services.coordination.modern.migration import from_classic, steps_from_classic
from pqbroker.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

FEW_MEMBERS: Final = 50
"""Members of a group that is built in one turn."""

Again = Callable[[KafkaError | None], None]
"""Called once, when the group may be asked for again, or with the reason why it cannot move."""


class _Built(NamedTuple):
    """A group, and what it was built of."""

    seen: object
    group: ModernGroup


@dataclass(slots=True, eq=False)
class _Upgrade:
    """A group that is being built, and who waits for it."""

    task: "asyncio.Task[_Built]"
    waiting: list[Again] = field(default_factory=list)


class Upgrades:
    """The groups of one coordinator tablet that are being built. `turns`: of the loop."""

    def __init__(self, topics: KnownTopics, turns: Turns) -> None:
        self._topics = topics
        self._turns = turns
        self._under_way: dict[Group, _Upgrade] = {}
        self._built: _Built | None = None
        """The group that those who wait for it may take now."""

    def take(self, group: Group, again: Again) -> ModernGroup | None:
        """Return a classic group as one of KIP-848; None: `again` will be called. KafkaError as `from_classic`."""
        if len(group.members) <= FEW_MEMBERS:
            return from_classic(group, self._topics)
        built, self._built = self._built, None
        if built is not None:
            if built.seen == self._seen(group):
                return built.group
            built.group.usage.release()
        upgrade = self._under_way.get(group)
        if upgrade is None:
            task = asyncio.get_running_loop().create_task(self._build(group))
            upgrade = self._under_way[group] = _Upgrade(task)
            task.add_done_callback(partial(self._ended, group))
        upgrade.waiting.append(again)
        return None

    def close(self, refusal: KafkaError) -> None:
        """Build nothing more, and refuse all who wait."""
        under_way, self._under_way = self._under_way, {}
        for upgrade in under_way.values():
            upgrade.task.cancel()
            for again in upgrade.waiting:
                again(refusal)

    async def _build(self, group: Group) -> _Built:
        """KafkaError as `from_classic`."""
        seen, steps = self._seen(group), steps_from_classic(group, self._topics)
        try:
            return _Built(seen, await self._turns.finish(steps))
        finally:
            steps.close()

    def _ended(self, group: Group, task: "asyncio.Task[_Built]") -> None:
        upgrade = self._under_way.pop(group, None)
        if task.cancelled():
            return  # closed: all who waited were told
        error = task.exception()
        if error is None:
            self._built = task.result()
        elif not isinstance(error, KafkaError):
            log.error("a group could not move between the protocols; this is a defect", exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the group could not move between the protocols")
        if upgrade is not None:
            first, *others = upgrade.waiting
            first(error)
            for again in others:  # each is a join of a large group, with a turn of its own
                self._turns.call_soon(partial(again, error))
        built, self._built = self._built, None
        if built is not None:
            built.group.usage.release()

    def _seen(self, group: Group) -> tuple[Any, ...]:
        """Return what a group of KIP-848 is built of; equal unless something of it has changed."""
        members = [(each.member_id, each, each.assignment, each.protocols) for each in group.members.values()]
        return group, group.generation, group.state, group.protocol, self._topics.version, members
