"""A coordinator tablet as the home of decisions: of commits that end a Kafka transaction or commit a group's offsets.

The decision is stored with the row of the transactional id, so that both are durable or none is. A coordinator has no
rows that could be prepared.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.pq.transactions.coordinator_decisions import DECISION_ROWS
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.pq.transactions.unfinished import Unfinished
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.resident_rows import ResidentRows
from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.tablet import TabletStorage

_NOTHING: Final[Mapping[TransactionId, PreparedHead]] = MappingProxyType({})


class CoordinatorHome:
    """A `Participant`, whose decisions are residents of their coordinator."""

    def __init__(self, coordinator: Coordinator, number: int, unfinished: Unfinished) -> None:
        self.coordinator = coordinator
        self.participant_id = ParticipantId(COORDINATOR_IDS[number])
        self.name = f"coordinator {number}"
        self.waits_for = ""
        self._unfinished = unfinished
        self._decisions: dict[TransactionId, CommitDecision] = {}
        self._is_loaded = False
        coordinator.admit(self)
        coordinator.participant_of_commits = self

    @property
    def rows(self) -> ResidentRows:
        return DECISION_ROWS

    def __len__(self) -> int:
        return len(self._decisions)

    def load(self, stored: Sequence[CommitDecision]) -> None:
        """Begin with the decisions that are stored."""
        self._decisions = {decision.transaction: decision for decision in stored}
        self._is_loaded = True
        if self._decisions:
            self._unfinished.add(self.participant_id)

    def wake(self, resident: object) -> None:
        """Do nothing: decisions have no timers."""

    def close(self) -> None:
        """The tablet is stopped or restarted: what is known may be over."""
        self._is_loaded = False
        self._decisions = {}

    @property
    def storage(self) -> TabletStorage:
        return self.coordinator.storage

    @property
    def is_known(self) -> bool:
        if not self._is_loaded:
            return False
        try:
            self.coordinator.check()
        except KafkaError:
            return False
        return True

    @property
    def is_lost(self) -> bool:
        return self.coordinator.storage.is_lost

    @property
    def prepared(self) -> Mapping[TransactionId, PreparedHead]:
        return _NOTHING

    def prepared_bytes(self, transaction: TransactionId) -> int:
        return 0

    @property
    def decisions(self) -> Mapping[TransactionId, CommitDecision]:
        return self._decisions

    def deciding(self, transaction: TransactionId, timestamp: int) -> None:
        """Do nothing: nobody reads a coordinator at a timestamp."""

    def finish(self, transaction: TransactionId, timestamp: int | None) -> Outcome[None]:
        """Return what is done: nothing is prepared."""
        done: Outcome[None] = Outcome()
        done.set_result(None)
        return done

    def take_decision(self, decision: CommitDecision) -> None:
        if self._is_loaded:
            self._decisions[decision.transaction] = decision

    def drop_decisions(self, transactions: Sequence[TransactionId]) -> Outcome[None]:
        """Remove decisions that nobody asks for any more. CommitRefused, ShardLost."""
        dropped: Outcome[None] = Outcome()

        def plan(changes: RowChanges) -> None:
            for transaction in transactions:
                DECISION_ROWS.delete(changes, transaction.hex())

        def done(error: BaseException | None) -> None:
            if error is None:
                for transaction in transactions:
                    self._decisions.pop(transaction, None)
            dropped.settle(error)

        self.coordinator.store(plan, done)
        return dropped
