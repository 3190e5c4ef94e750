"""Stores of the groups of KIP-848 of one coordinator tablet: what groups have become, and the answers behind it.

Changes of many groups that come while a store is under way go into the next one together. A store that is refused is
tried again with the group's next request, and no answer leaves before it.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.broker.services.coordination.modern.group import ModernGroup, Unstored
from pqbroker.broker.services.coordination.modern_changes import delete_rows, put_changes
from pqbroker.pq.serving.store_refusals import GROUPS, store_refusal
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.row_sets import RowChanges

log = logging.getLogger(__name__)

STORED_GROUPS_MAX: Final = 64
"""Groups whose changes go into one store at most."""
STORED_TOGETHER_BYTES: Final = 256 << 10
"""Bytes of groups that go into one store together; a larger one goes alone."""

Settle = Callable[[KafkaError | None], None]
"""Gives out an answer once what it says is durable (None), or the reason why it is not."""


@dataclass(slots=True)
class _Round:
    """Changes that one store takes, and the answers behind them."""

    taken: dict[ModernGroup, Unstored] = field(default_factory=dict)
    answers: dict[ModernGroup, list[Settle]] = field(default_factory=dict)


class ModernStores:
    """One store at a time; `follow` is called with a group in the call that has changed it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._waiting: dict[ModernGroup, list[Settle]] = {}
        """Groups with changes to store, and the answers behind them, in the order in which they came."""
        self._round: _Round | None = None
        """The store that is under way."""

    def follow(self, group: ModernGroup, settle: Settle | None = None) -> None:
        """Store what has changed of a group. `settle` is called when all of it is durable: in this call if it is."""
        answers = self._answers_behind(group)
        if answers is None:
            if settle is not None:
                settle(None)
            return
        if settle is not None:
            answers.append(settle)
        self._store()

    def forget(self, group: ModernGroup, settle: Settle) -> Awaitable[None]:
        """Delete what is stored of a group; `settle` is called behind the answers that wait for it."""
        waiting = [*self.give_up(group), settle]
        plan = partial(delete_rows, group_id=group.group_id)
        return self._coordinator.store(plan, partial(give, waiting))

    def give_up(self, group: ModernGroup) -> list[Settle]:
        """Store nothing more of a group; return the answers that wait for it. What is under way is stored: stores are
        in the order of their calls."""
        return self._waiting.pop(group, [])

    def close(self, refusal: KafkaError) -> None:
        """Refuse every answer that waits."""
        waiting, self._waiting, under_way, self._round = self._waiting, {}, self._round, None
        for answers in (*({} if under_way is None else under_way.answers).values(), *waiting.values()):
            for settle in answers:
                settle(refusal)

    def _answers_behind(self, group: ModernGroup) -> list[Settle] | None:
        """Return the answers that wait until the group is durable as it is; None if it is."""
        if group.unstored or group in self._waiting:
            return self._waiting.setdefault(group, [])
        return None if self._round is None else self._round.answers.get(group)

    def _store(self) -> None:
        if self._round is None and self._waiting and not self._coordinator.is_closed:
            self._round = _Round()
            self._coordinator.store(partial(self._plan, self._round), partial(self._stored, self._round))

    def _plan(self, taken: _Round, changes: RowChanges) -> None:
        """Take what groups have become by now."""
        size = 0
        while self._waiting and len(taken.taken) < STORED_GROUPS_MAX:
            group = next(iter(self._waiting))
            size += group.usage.taken
            if taken.taken and size > STORED_TOGETHER_BYTES:
                break
            taken.answers[group] = self._waiting.pop(group)
            taken.taken[group] = group.take_unstored()
            put_changes(changes, group, taken.taken[group])

    def _stored(self, taken: _Round, error: BaseException | None) -> None:
        if self._round is not taken:
            return  # closed meanwhile: everything is answered
        self._round = None
        for group, unstored in taken.taken.items():
            if error is not None:
                group.unstored.add(unstored)
            else:
                group.is_stored = True
        for answers in taken.answers.values():
            give(answers, error)
        self._store()


def give(answers: list[Settle], error: BaseException | None) -> None:
    """Give out answers behind a store, in their order."""
    refusal = None if error is None else _refused(error)
    for settle in answers:
        settle(refusal)


def _refused(error: BaseException) -> KafkaError:
    """Return a code after which clients find their coordinator and try again."""
    refusal = store_refusal(error, GROUPS)
    if refusal is None:
        log.error("a consumer group could not be stored; this is a defect of the broker", exc_info=error)
    return refusal or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the group could not be stored")
