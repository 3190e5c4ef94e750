"""Rows of a coordinator tablet beside a decision: changed transactional ids, and the decision if it lies there."""

from collections.abc import Sequence
from functools import partial

from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.pq.transactions.coordinator_decisions import put_decision
from pqbroker.pq.transactions.stored_forms import CommitDecision
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.kv.joint_request import BatchBeside, TabletCommands
from pqbroker.storage.tablets.base_tablet import HeldTablet
from pqbroker.storage.tablets.coordinator_rows import TRANSACTIONAL_ROWS, TransactionalImage, transactional_row
from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.tablet import TabletStorage


class IdsPart:
    """Changed rows of transactional ids of one coordinator, as a `BesidePart`."""

    def __init__(
        self, coordinator: Coordinator, images: Sequence[TransactionalImage], *, may_store_snapshot: bool = False
    ) -> None:
        """`images`: of different ids; none where the decision alone is stored. Not `may_store_snapshot`: CommitRefused
        while one is due, so that partitions do not wait for it."""
        self._may_store_snapshot = may_store_snapshot
        self._coordinator = coordinator
        self._images = images
        self._held: HeldTablet | None = None

    @property
    def storage(self) -> TabletStorage:
        return self._coordinator.storage

    async def hold(self) -> None:
        """Let nothing else be stored in the tablet. KafkaError 15, 16; CommitRefused."""
        self._held = await self._coordinator.hold_changes(may_store_snapshot=self._may_store_snapshot)

    def refusal(self) -> BaseException | None:
        if self._coordinator.is_closed or self.storage.is_blocked:
            return CommitRefused("the coordinator is stopping or being restarted")
        return None

    def commands(self) -> Sequence[TabletCommands]:
        return ()

    def batches(self, decision: CommitDecision | None) -> Sequence[BatchBeside]:
        assert self._held is not None, "the part holds"
        return (BatchBeside(self.storage, self._held.plan(partial(self._put, decision))),)

    def told(self, error: BaseException | None) -> None:
        assert self._held is not None, "the part holds"
        self._held.settle(error)

    def _put(self, decision: CommitDecision | None, changes: RowChanges) -> None:
        if self._images and TRANSACTIONAL_ROWS.row_set not in changes.row_sets:
            TRANSACTIONAL_ROWS.create(changes)
        for image in self._images:
            changes.put(TRANSACTIONAL_ROWS.row_set, (image.transactional_id,), transactional_row(image))
        if decision is not None:
            put_decision(changes, decision)
