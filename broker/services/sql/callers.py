"""Needs of SQL's lists of topics and tables: of the node, and of their callers."""

from collections.abc import Mapping
from typing import Protocol

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.services.topics.callers import TopicsNode, TopicsOpening
from pqbroker.tables.serving.table import SortedTable


class ListedTables(Protocol):
    """The sorted tables of a node."""

    @property
    def tables(self) -> Mapping[str, SortedTable]:
        """Return the tables by name."""


class ListingOpening(TopicsOpening, Protocol):
    """One opening of the system cell, and its sorted tables."""

    @property
    def sorted_tables(self) -> ListedTables: ...


class ListingNode(TopicsNode, Protocol):
    """The node whose topics and tables are listed."""

    @property
    def cell(self) -> Openings[ListingOpening]: ...


class ListingCaller(Protocol):
    """A caller that lists topics and tables."""

    @property
    def node(self) -> ListingNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...
