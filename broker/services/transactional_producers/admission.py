"""Admission of transactional batches on a node that coordinates no transactional ids: what it needs of another node."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pqbroker.broker.services.transactional_producers.rules import Claim
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.tablets.coordinator_rows import PartitionId


class BatchOfTransaction(NamedTuple):
    """A batch as its coordinator needs to know it. `adds`: its partition is taken into the transaction if need be."""

    transactional_id: str
    claim: Claim
    partition: PartitionId
    adds: bool


class BatchAdmission(Protocol):
    """The way to the coordinators of other nodes."""

    def admit(self, batch: BatchOfTransaction, then: Callable[[KafkaError | None], None]) -> None:
        """Call `then` once the coordinator has said that the batch belongs to its producer's transaction, or with the
        refusal. Batches of a producer and partition are let through in the order of the calls, and none behind a
        marker that has ended the transaction meanwhile."""
