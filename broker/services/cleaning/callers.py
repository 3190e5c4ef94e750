"""Needs of the services of cleaning: of the node, and of their callers."""

from typing import Protocol

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.services.cleaning.cleaner import Cleaner
from pqbroker.broker.services.tables.callers import TablesNode


class CleaningNode(TablesNode, Protocol):
    """The node whose compacted topics are cleaned."""

    @property
    def cleaner(self) -> Cleaner: ...


class CleaningCaller(Protocol):
    """A caller that has topics cleaned, or looks at it."""

    @property
    def node(self) -> CleaningNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...
