"""Needs of the services of tables: of the node, and of their callers."""

from collections.abc import Callable
from typing import Protocol

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.ground.other_nodes import OtherNodes
from pqbroker.broker.services.cells.data_cells import DataCells
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.configs.callers import ConfigsNode, ConfigsOpening
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.services.sql.workers import Workers
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.tables.serving.tables import SortedTables


class TablesOpening(ConfigsOpening, Protocol):
    """One opening of the system cell, and of the cells beside it."""

    @property
    def sorted_tables(self) -> SortedTables: ...
    @property
    def cells(self) -> OpenCells: ...
    @property
    def others(self) -> DataCells: ...
    @property
    def commits(self) -> Commits: ...


class TablesNode(ConfigsNode, Protocol):
    """The node whose tables are served."""

    @property
    def cell(self) -> Openings[TablesOpening]: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def leaders(self) -> Leaders: ...
    @property
    def others(self) -> Callable[[], OtherNodes | None]:
        """Return what gives the other nodes of a broker with several, at the first one; None elsewhere."""

    @property
    def workers(self) -> Workers:
        """The processes that look into columns."""


class TablesCaller(Protocol):
    """A caller that changes tables."""

    @property
    def node(self) -> TablesNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...
