"""Transactional ids as residents of a coordinator: requests in order, one store for those of a turn, time-outs, ends.

    asked --decided--> refused, or nothing changes: answered at once
                |----> ended, with what the end writes, where that can be one commit --durable--> applied, answered
                |                                           stored <--------------------refused--'
                |----> stored, with all others of the tablet --durable--> applied, answered
                |----> lent, to a commit over tables that stores it --given back--> applied, or as it was
                '----> waits, while the transaction before is being ended --ended, or too long--> decided

What is decided is in rules.py; what an end writes is in ending.py, and ending_at_once.py.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.broker.services.transactional_producers import rules
from pqbroker.broker.services.transactional_producers.ending_at_once import Ending
from pqbroker.broker.services.transactional_producers.rules import Step
from pqbroker.pq.serving.store_refusals import GROUPS, store_refusal
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import (
    TRANSACTIONAL_ROWS,
    TransactionalImage,
    transactional_row,
)
from pqbroker.storage.tablets.resident_rows import ResidentRows
from pqbroker.storage.tablets.row_sets import RowChanges

STORED_BYTES_MAX: Final = 4 << 20
"""Bytes of changed ids, as `image_bytes` counts them, that one store begins at most."""
REFUSED_LOOK_MS: Final = 1000
"""Time to the next try of a time-out that the store refused."""

Decide = Callable[[TransactionalImage | None], Step]
"""A request as a rule. It is called again for a request that waited."""
Answer = Callable[[TransactionalImage | None, KafkaError | None], None]
"""Called once, when that is durable, with the image after a request, and why the request was refused."""

log = logging.getLogger(__name__)


class _Asked(NamedTuple):
    decide: Decide
    answer: Answer
    until_ms: int
    """Time of the coordinator until which it may wait."""
    is_lending: bool = False
    """True if the answer comes at once, and the caller stores the image."""


@dataclass(slots=True, eq=False)
class Resident:
    """A transactional id: its durable image, and the requests that are not decided yet."""

    transactional_id: str
    image: TransactionalImage | None = None
    asked: deque[_Asked] = field(default_factory=deque)
    is_changing: bool = False
    """True while a change of it is being stored."""
    ending: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Return True if requests are not answered yet."""
        return self.is_changing or bool(self.asked)


class TransactionalNode(Protocol):
    """The node around the ids of one tablet."""

    @property
    def wait_ms(self) -> int:
        """Return the time that a request waits at most for the end of the transaction before."""

    def clock(self) -> int:
        """Return milliseconds since 1970."""

    def follow(self, before: TransactionalImage | None, after: TransactionalImage | None) -> None:
        """Learn that an id has changed; None: it is not there."""

    def may_end_at_once(self, coordinator: Coordinator, decided: TransactionalImage) -> bool:
        """Return True if a transaction may be decided, and all that ends it written, in one commit."""

    def end_at_once(self, ending: Ending) -> None:
        """Decide and end a transaction in one commit."""

    async def end_decided(self, image: TransactionalImage, coordinator_epoch: int) -> None:
        """Write what ends a decided transaction; return when all of it is durable."""


class TransactionalIds:
    """The transactional ids of one coordinator tablet."""

    def __init__(self, coordinator: Coordinator, surroundings: TransactionalNode) -> None:
        self.coordinator = coordinator
        self._around = surroundings
        self._loop = asyncio.get_running_loop()
        self._residents: dict[str, Resident] = {}
        self._ready: dict[Resident, None] = {}
        """Ids with requests to decide, in the order in which they came."""
        self._put_off: list[_Change] = []
        """Ends that could not be one commit, and are to be stored."""
        self._is_scheduled = False
        self._is_storing = False
        coordinator.admit(self)

    @property
    def rows(self) -> ResidentRows:
        return TRANSACTIONAL_ROWS

    def __len__(self) -> int:
        return len(self._residents)

    @property
    def residents(self) -> Mapping[str, Resident]:
        """Return the residents by transactional id; those being made have no image yet."""
        return MappingProxyType(self._residents)

    def load(self, stored: Sequence[TransactionalImage]) -> None:
        """Begin with those that are stored: decided transactions are ended, open ones time out."""
        for image in stored:
            resident = self._residents[image.transactional_id] = Resident(image.transactional_id)
            self._apply(resident, image)

    def check(self) -> None:
        """Check that the ids are served and known. KafkaError 15, 16."""
        self.coordinator.check()
        if self.coordinator.is_closed:
            raise _closed()

    def ask(self, transactional_id: str, decide: Decide, answer: Answer) -> None:
        """Decide a request behind those of the id that came before; `check` comes first, in the same call."""
        resident = self._residents.get(transactional_id)
        if resident is None:
            resident = self._residents[transactional_id] = Resident(transactional_id)
        resident.asked.append(_Asked(decide, answer, self.coordinator.now_ms() + self._around.wait_ms))
        self._make_ready(resident)

    def lend(self, transactional_id: str, decide: Decide, answer: Answer) -> None:
        """Decide a request as `ask` does, and have the caller store the image: until it gives the id back nothing else
        is decided about it. `answer` is called with the image, or a refusal, and nothing is lent then."""
        resident = self._residents.get(transactional_id)
        if resident is None:
            resident = self._residents[transactional_id] = Resident(transactional_id)
        until_ms = self.coordinator.now_ms() + self._around.wait_ms
        resident.asked.append(_Asked(decide, answer, until_ms, is_lending=True))
        self._make_ready(resident)

    def give_back(self, resident: Resident, images: Sequence[TransactionalImage | None]) -> None:
        """An id that was lent has these images by now, one after the other, all durable; none: it is as it was. After a
        restart of the tablet it was loaded again."""
        if self.coordinator.is_closed or self._residents.get(resident.transactional_id) is not resident:
            return
        resident.is_changing = False
        for image in images[:-1]:
            self._around.follow(resident.image, image)
            resident.image = image
        for image in images[-1:]:
            self._apply(resident, image)
        self._give(resident, ())
        if resident.asked:
            self._make_ready(resident)

    def wake(self, resident: Resident) -> None:
        """A time-out may be over, or the time that a request waits."""
        is_late = resident.image is not None and self._is_timed_out(resident.image)
        if is_late and not resident.is_busy:
            resident.asked.append(_Asked(self._time_out, _nobody_waits, 0))
        if resident.asked:
            self._make_ready(resident)
        self._arm(resident, REFUSED_LOOK_MS if is_late else 1)

    def close(self) -> None:
        """Answer every request that waits, and end nothing more."""
        residents, self._residents = self._residents, {}
        self._ready.clear()
        put_off, self._put_off = self._put_off, []
        for change in put_off:
            self._give(change.resident, [given._replace(refusal=_closed()) for given in change.answers])
        for resident in residents.values():
            self._around.follow(resident.image, None)
            if resident.ending is not None:
                resident.ending.cancel()
            while resident.asked:
                resident.asked.popleft().answer(None, _closed())

    def _make_ready(self, resident: Resident) -> None:
        self._ready[resident] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_storing:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Decide what came in since, and store what has changed in one commit."""
        self._is_scheduled = False
        changes, self._put_off = self._put_off, []
        size = 0
        while self._ready and size < STORED_BYTES_MAX and not self.coordinator.is_closed:
            resident = next(iter(self._ready))
            del self._ready[resident]
            change = None if resident.is_changing else self._decide(resident)
            if change is not None and not self._ends_at_once(change):
                changes.append(change)
                size += 0 if change.image is None else rules.image_bytes(change.image)
        if changes:
            self._is_storing = True
            self.coordinator.store(partial(_put, changes), partial(self._stored, changes))

    def _decide(self, resident: Resident) -> "_Change | None":
        """Decide the requests of an id; those that change nothing are answered."""
        image, answers = resident.image, list[_Given]()
        while resident.asked:
            asked = resident.asked[0]
            step = asked.decide(image)
            if step.waits and self.coordinator.now_ms() < asked.until_ms:
                break
            if asked.is_lending and step.refusal is None:
                if image is not resident.image:
                    break  # what was decided before it is stored first
                resident.asked.popleft()
                resident.is_changing = True
                self._give(resident, answers)
                asked.answer(step.image, None)
                return None
            resident.asked.popleft()
            image = step.image
            answers.append(_Given(asked.answer, image, step.refusal))
        if image is not resident.image:
            resident.is_changing = True
            return _Change(resident, image, answers)
        self._give(resident, answers)
        self._arm(resident)
        return None

    def _ends_at_once(self, change: "_Change") -> bool:
        """Return True if a change is a decision that is being stored together with what it ends."""
        decided = change.image
        if decided is None or not rules.is_prepared(decided):
            return False
        if not self._around.may_end_at_once(self.coordinator, decided):
            return False
        completed = rules.complete(decided, self._around.clock())
        told = partial(self._ended_at_once, change, completed)
        self._around.end_at_once(Ending(self.coordinator, decided, completed, told))
        return True

    def _ended_at_once(
        self, change: "_Change", completed: TransactionalImage, error: BaseException | None
    ) -> None:
        if self.coordinator.is_closed or self._residents.get(change.resident.transactional_id) is not change.resident:
            self._give(change.resident, [given._replace(refusal=_closed()) for given in change.answers])
        elif error is not None:
            self._put_off.append(change)
            self._schedule()
        else:
            resident = change.resident
            resident.is_changing = False
            self._around.follow(resident.image, change.image)
            resident.image = change.image
            self._apply(resident, completed)
            self._give(resident, change.answers)
            if resident.asked:
                self._make_ready(resident)

    def _stored(self, changes: "Sequence[_Change]", error: BaseException | None) -> None:
        self._is_storing = False
        refusal = _closed() if self.coordinator.is_closed else None if error is None else _refused(error)
        for change in changes:
            change.resident.is_changing = False
            if refusal is None:
                self._apply(change.resident, change.image)
                self._give(change.resident, change.answers)
                continue
            self._give(change.resident, [given._replace(refusal=refusal) for given in change.answers])
            if not self.coordinator.is_closed:
                self._arm(change.resident, REFUSED_LOOK_MS)
        for change in changes:
            if change.resident.asked and not self.coordinator.is_closed:
                self._ready[change.resident] = None
        if self._ready or self._put_off:
            self._schedule()

    def _give(self, resident: Resident, answers: "Sequence[_Given]") -> None:
        for given in answers:
            given.answer(given.image, given.refusal)
        is_gone = resident.image is None and not resident.is_busy
        if is_gone and self._residents.get(resident.transactional_id) is resident:
            del self._residents[resident.transactional_id]

    def _apply(self, resident: Resident, image: TransactionalImage | None) -> None:
        before, resident.image = resident.image, image
        self._around.follow(before, image)
        if image is not None and rules.is_prepared(image) and resident.ending is None:
            resident.ending = self._loop.create_task(self._end(resident, image))
        self._arm(resident)

    async def _end(self, resident: Resident, image: TransactionalImage) -> None:
        """Write what ends the transaction, and then that it has ended."""
        await self._around.end_decided(image, self.coordinator.generation)
        resident.ending = None
        resident.asked.appendleft(_Asked(self._complete, partial(self._completed, resident), 0))
        self._make_ready(resident)

    def _complete(self, image: TransactionalImage | None) -> Step:
        assert image is not None, "an id is not forgotten while its transaction is ended"
        return Step(rules.after_end(image, self._around.clock()))

    def _completed(self, resident: Resident, _: TransactionalImage | None, refusal: KafkaError | None) -> None:
        """Write the end again where the store refused that it has ended: markers are the same twice."""
        image = resident.image
        if refusal is not None and image is not None and not self.coordinator.is_closed:
            log.warning("transactional id %r is ended again: %s", image.transactional_id, refusal)
            resident.ending = self._loop.create_task(self._end_later(resident, image))

    async def _end_later(self, resident: Resident, image: TransactionalImage) -> None:
        await asyncio.sleep(REFUSED_LOOK_MS / 1000)
        await self._end(resident, image)

    def _time_out(self, image: TransactionalImage | None) -> Step:
        if image is None or not self._is_timed_out(image):
            return Step(image)
        log.info("transactional id %r timed out after %d ms: aborted", image.transactional_id, image.timeout_ms)
        return Step(rules.fenced(image, self._around.clock()))

    def _is_timed_out(self, image: TransactionalImage) -> bool:
        ends_at_ms = rules.ends_at_ms(image)
        return ends_at_ms is not None and ends_at_ms <= self._around.clock()

    def _arm(self, resident: Resident, at_least_ms: int = 1) -> None:
        """Wake the id when its transaction times out, and when its first request has waited for long enough."""
        now_ms = self.coordinator.now_ms()
        times = [resident.asked[0].until_ms] if resident.asked else []
        ends_at_ms = None if resident.image is None else rules.ends_at_ms(resident.image)
        if ends_at_ms is not None:
            times.append(now_ms + ends_at_ms - self._around.clock())
        at_ms = max(min(times), now_ms + at_least_ms) if times else None
        self.coordinator.wake_at(self, resident, at_ms)


class _Given(NamedTuple):
    """An answer, for when the change before it is durable; with the image behind its own request, though later ones of
    the same turn may have changed that again."""

    answer: Answer
    image: TransactionalImage | None
    refusal: KafkaError | None


class _Change(NamedTuple):
    """A change of an id, and the answers that wait for it."""

    resident: Resident
    image: TransactionalImage | None
    answers: list[_Given]


def _put(changes: Sequence[_Change], row_changes: RowChanges) -> None:
    is_new = TRANSACTIONAL_ROWS.row_set not in row_changes.row_sets
    if is_new:
        TRANSACTIONAL_ROWS.create(row_changes)
    for change in changes:
        name = change.resident.transactional_id
        if change.image is not None:
            row_changes.put(TRANSACTIONAL_ROWS.row_set, (name,), transactional_row(change.image))
        elif not is_new:
            TRANSACTIONAL_ROWS.delete(row_changes, name)


def _nobody_waits(_image: TransactionalImage | None, _refusal: KafkaError | None) -> None: ...


def _closed() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator is stopping or being restarted: retry")


def _refused(error: BaseException) -> KafkaError:
    refusal = store_refusal(error, GROUPS)
    if refusal is None:
        log.error("a transactional id could not be stored; this is a defect of the broker", exc_info=error)
    return refusal or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the transactional id could not be stored")
