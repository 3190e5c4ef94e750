"""Needs of the services of materializations: of the node, and of their callers."""

from typing import Protocol

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.services.materializing.feeding import Feeding
from pqbroker.broker.services.tables.callers import TablesNode


class FeedingNode(TablesNode, Protocol):
    """The node whose tables are fed."""

    @property
    def feeding(self) -> Feeding: ...


class FeedingCaller(Protocol):
    """A caller that has topics feed tables."""

    @property
    def node(self) -> FeedingNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...
