"""Needs of the services of queues: of the node, and of their callers."""

from typing import Protocol

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.services.coordination.callers import GroupsOpening
from pqbroker.broker.services.tables.callers import TablesNode, TablesOpening


class QueuesOpening(TablesOpening, GroupsOpening, Protocol):
    """One opening of the system cell."""


class QueuesNode(TablesNode, Protocol):
    """The node whose queues are served."""

    @property
    def cell(self) -> Openings[QueuesOpening]: ...


class QueuesCaller(Protocol):
    """A caller that reads or writes queues, or changes their consumers. `holder`: the key of its shares of limits."""

    @property
    def node(self) -> QueuesNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...
    @property
    def holder(self) -> str: ...
