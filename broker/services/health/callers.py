"""Needs of the service of health: of the node."""

from collections.abc import Callable
from typing import Protocol

from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.other_nodes import OtherNodes
from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.broker.services.cleaning.cleaner import Cleaner
from pqbroker.broker.services.sql.workers import Workers
from pqbroker.broker.services.workers.task_pool import TaskPool
from pqbroker.conf.broker import BrokerSettings


class HealthyNode(Protocol):
    """A node that is looked at."""

    @property
    def cell(self) -> CellOwner: ...
    @property
    def clock(self) -> Callable[[], int]:
        """Return the wall clock, in milliseconds since 1970."""

    @property
    def metrics(self) -> Metrics: ...
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def searchers(self) -> TaskPool: ...
    @property
    def cleaner(self) -> Cleaner: ...
    @property
    def others(self) -> Callable[[], OtherNodes | None]:
        """Return what gives the other nodes of a broker with several, at the first one; None elsewhere."""
