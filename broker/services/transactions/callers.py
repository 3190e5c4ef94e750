"""Needs of the services of transactions: of the node, and of their callers."""

from typing import Protocol

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.services.coordination.coordinators import Coordinators
from pqbroker.broker.services.tables.callers import TablesNode, TablesOpening
from pqbroker.broker.services.transactional_producers.producers import TransactionalProducers


class TransactionsOpening(TablesOpening, Protocol):
    """One opening of the system cell, with what Kafka's transactions need."""

    @property
    def coordinators(self) -> Coordinators: ...
    @property
    def transactional_producers(self) -> TransactionalProducers: ...


class TransactionsNode(TablesNode, Protocol):
    """The node whose transactions are served."""

    @property
    def cell(self) -> Openings[TransactionsOpening]: ...


class TransactionsCaller(Protocol):
    """A caller that begins and ends transactions."""

    @property
    def node(self) -> TransactionsNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...
