"""One request to several KV tablets of a cell, as one commit: all of it or nothing. Others' batches may be in it.

    waiting --first in the queue of every tablet, no key of it in flight--> in flight --durable--> applied in all
                                                                                      --refused--> gone without a trace
                                                                                      --lost-----> gone

It takes its place in every tablet's queue in the same call, so that two such requests stand in the same order in all
queues that they share, and none waits for the other in a circle.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pqbroker.storage.blobs.blob_storage import Blocked
from pqbroker.storage.engine import Batch, CommitRefused, ShardLost
from pqbroker.storage.kv.commands import Command, KeyValueError
from pqbroker.storage.kv.plan import Plan
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import TabletStorage

TabletCommands = tuple[KeyValueTablet, Sequence[Command]]
"""A tablet and the commands of its part of a joint request."""


class BatchBeside(NamedTuple):
    """Changes of a tablet without keys, in the form that the store takes; nothing else of it is on its way."""

    storage: TabletStorage
    batch: Batch


def execute_together(parts: Sequence[TabletCommands], batches: Sequence[BatchBeside] = ()) -> Outcome[None]:
    """Apply the commands of every tablet, and the batches; durable and visible in all when the outcome comes.

    Fails as `KeyValueTablet.execute` does. A tablet that is blocked fails the request and leaves the others alone.
    """
    assert parts or batches
    if len(parts) == 1 and not batches:
        tablet, commands = parts[0]
        return tablet.execute(commands)
    request = _Together(parts, batches)
    lost = next((tablet.lost for tablet in request.tablets if tablet.lost is not None), None)
    if lost is not None:
        request.finish(lost)
    elif not request.admit():
        for tablet in request.tablets:
            tablet.enqueue(request)
    return request.outcome


class _Together:
    """A joint request between its call and its outcome."""

    __slots__ = ("_batches", "_parts", "_plans", "_storages", "outcome", "tablets")

    def __init__(self, parts: Sequence[TabletCommands], batches: Sequence[BatchBeside]) -> None:
        self.outcome: Outcome[None] = Outcome()
        self.tablets = [tablet for tablet, _ in parts]
        self._parts = parts
        self._batches = batches
        self._plans: list[Plan] = []
        self._storages = [tablet.storage for tablet in self.tablets] + [each.storage for each in batches]
        first = self._storages[0]
        assert len({id(tablet) for tablet in self.tablets}) == len(parts), "a tablet has one part"
        assert all(storage.shares_cell(first) for storage in self._storages), "one commit is of one cell"

    def admit(self) -> bool:
        """Commit the request, unless something stands before it in some tablet."""
        if not all(tablet.is_next(self) for tablet in self.tablets):
            return False
        plans = []
        try:
            for storage in self._storages:
                storage.check()
            for tablet, commands in self._parts:
                try:
                    plan = tablet.plan_part(commands)
                except (KeyValueError, ShardLost):
                    raise
                except BaseException as defect:
                    tablet.give_up(defect)
                    raise
                if plan is None:
                    return False
                plans.append(plan)
        except (KeyValueError, ShardLost) as refusal:
            self.finish(refusal)
            return True
        self._leave()
        self._plans = plans
        self._commit()
        return True

    def finish(self, error: BaseException | None) -> None:
        """Leave every queue and tell the caller, once."""
        self._leave()
        if not self.outcome.done():
            self.outcome.settle(error)

    def _commit(self) -> None:
        batch = Batch()
        for tablet, plan in zip(self.tablets, self._plans, strict=True):
            batch.take_in(plan.batch)
            tablet.begin(plan)
        for each in self._batches:
            batch.take_in(each.batch)
        first, *others = self._storages
        first.submit(batch, self._settle, others)

    def _settle(self, error: BaseException | None) -> None:
        for tablet, plan in zip(self.tablets, self._plans, strict=True):
            tablet.end(plan, _for_one(tablet, error))
        self.finish(error)
        for tablet in self.tablets:
            tablet.advance()

    def _leave(self) -> None:
        for tablet in self.tablets:
            tablet.leave(self)


def _for_one(tablet: KeyValueTablet, error: BaseException | None) -> BaseException | None:
    """Return what became of the commit for one of the tablets: to others than the blocked ones it was only refused."""
    if isinstance(error, Blocked) and not tablet.storage.is_blocked:
        return CommitRefused(str(error))
    return error
