"""The node, as what serves HTTP needs it."""

from collections.abc import Mapping
from typing import Protocol

from pqbroker.broker.ground.client_connections import ConnectionFacts
from pqbroker.broker.ground.cues.cues import Cues
from pqbroker.broker.ground.log_tail import LogTail
from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.needs import Need
from pqbroker.broker.ground.series import Series
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.broker.services.cleaning.callers import CleaningNode
from pqbroker.broker.services.health.callers import HealthyNode
from pqbroker.broker.services.health.health import Health
from pqbroker.broker.services.logins.logins import Logins
from pqbroker.broker.services.materializing.callers import FeedingNode
from pqbroker.broker.services.quotas.client_quotas import ClientQuotas
from pqbroker.broker.services.sql.workers import Workers
from pqbroker.broker.services.topics.topic_rates import TopicRates
from pqbroker.broker.services.workers.task_pool import TaskPool


class ClientConnections(Protocol):
    """Connections of Kafka clients."""

    def __len__(self) -> int: ...

    def after(self, number: int, count: int) -> list[tuple[int, ConnectionFacts]]:
        """Return facts of at most `count` connections of a greater number, which came later, each with its number."""

    def measure(self) -> None:
        """Have every connection count what its requests cost, until nobody has called this for a while."""


class WebNode(FeedingNode, CleaningNode, HealthyNode, Protocol):
    """A node that is asked over HTTP. What belongs to one opening of the cell is reached by `cell.current`, and not
    kept over an await: the cell may be opened again."""

    @property
    def cell(self) -> CellOwner: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def health(self) -> Health: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def connections(self) -> ClientConnections: ...
    @property
    def api_names(self) -> Mapping[int, str]:
        """Names of the APIs of Kafka that are served, by key."""

    @property
    def workers(self) -> Workers:
        """Return the workers that run SQL."""

    @property
    def searchers(self) -> TaskPool:
        """Return the workers that search in topics."""

    @property
    def logins(self) -> Logins: ...
    @property
    def cues(self) -> Cues | None:
        """Return the cues that tests give; None: the broker is not for tests."""

    @property
    def log_tail(self) -> LogTail: ...
    @property
    def series(self) -> Series:
        """The main figures of the last minutes."""

    @property
    def api_needs(self) -> Mapping[str, tuple[Need, ...]]:
        """Rights that the APIs of Kafka need, by name."""

    @property
    def topic_rates(self) -> TopicRates: ...
    @property
    def quotas(self) -> ClientQuotas: ...
    @property
    def rules(self) -> RuleAccess | None:
        """Return the access rules; None: there are none."""

    @property
    def started_ms(self) -> int:
        """Return when the node opened its cell, in ms since 1970."""
