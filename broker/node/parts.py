"""The parts of one node, wired together."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pqbroker.broker.ground.access import Access
from pqbroker.broker.ground.audit import AuditLog
from pqbroker.broker.ground.cues.cues import Cues
from pqbroker.broker.ground.listeners import Listener
from pqbroker.broker.ground.log_tail import LogTail
from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.needs import Need
from pqbroker.broker.ground.other_nodes import OtherNodes
from pqbroker.broker.ground.series import Series
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.answer_budget import AnswerBudget
from pqbroker.broker.kafka.apis.fetch_sessions import FetchSessions
from pqbroker.broker.kafka.net.connections import Connections
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.broker.services.cleaning.cleaner import Cleaner
from pqbroker.broker.services.health.health import Health
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.services.logins.logins import Logins
from pqbroker.broker.services.materializing.feeding import Feeding
from pqbroker.broker.services.producer_ids import ProducerIds
from pqbroker.broker.services.quotas.client_quotas import ClientQuotas
from pqbroker.broker.services.sql.workers import Workers
from pqbroker.broker.services.topics.callers import NamedTopics
from pqbroker.broker.services.topics.record_checks import RecordChecks
from pqbroker.broker.services.topics.topic_rates import TopicRates
from pqbroker.broker.services.workers.task_pool import TaskPool
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.engine import PoolStats

if TYPE_CHECKING:
    from pqbroker.broker.ground.tls.tls_listeners import TlsListeners


@dataclass(frozen=True, slots=True)
class Node:
    """Parts of the node that the floors need, wired once; each says which: `KafkaNode`, `WebNode`, `TablesNode`."""

    cell: CellOwner
    loop: asyncio.AbstractEventLoop
    clock: Callable[[], int]
    metrics: Metrics
    sessions: FetchSessions
    producer_ids: ProducerIds
    cluster_id: str
    leaders: Leaders
    turns: Turns
    answers: AnswerBudget
    connections: Connections
    logins: Logins
    pools: Callable[[], tuple[PoolStats, ...]] = tuple
    """Space of the pools of the cell."""
    listeners: tuple[Listener, ...] = ()
    """Listeners of the node, with the ports that are bound."""
    http: Callable[[], Listener | None] = lambda: None
    """HTTP address, with the port that is bound; None: there is none."""
    others: Callable[[], OtherNodes | None] = lambda: None
    """Other nodes of a broker with several, at the first one."""
    log_tail: LogTail = field(default_factory=LogTail)
    series: Series = field(default_factory=lambda: Series(dict))
    """The main figures of the last minutes."""
    started_ms: int = 0
    """Time when the node opened its cell, in ms since 1970."""
    api_names: Mapping[int, str] = field(default_factory=dict)
    """Names of the APIs of Kafka that are served, by key."""
    api_needs: Mapping[str, tuple[Need, ...]] = field(default_factory=dict)
    """Rights that those APIs need, by name."""
    api_ranges: tuple[tuple[int, int, int], ...] = ()
    """Key, least and greatest version of each API that ApiVersions lists."""
    record_checks: RecordChecks = field(default_factory=RecordChecks)
    workers: Workers = field(default_factory=Workers)
    """Worker processes for SQL and for rows in Arrow."""
    searchers: TaskPool = field(default_factory=lambda: TaskPool("searched"))
    """Worker processes for searches in topics."""
    feeding: Feeding = field(default_factory=Feeding)
    """Topics that feed sorted tables."""
    cleaner: Cleaner = field(default_factory=Cleaner)
    """Passes over compacted topics."""
    topic_rates: TopicRates = field(default_factory=TopicRates)
    """Records a second that topics are given."""
    health: Health = field(default_factory=Health)
    """Conditions of the node: what is wrong with it."""
    access: Access | None = None
    """Decides who may do what with a topic; None: everybody everything."""
    tls: "TlsListeners | None" = None
    """Listeners that are encrypted; None: none is."""
    quotas: ClientQuotas = field(default_factory=lambda: ClientQuotas(BrokerSettings(), lambda: 0.0, lambda: None))
    """Quotas of clients, and what was used of them."""
    audit: AuditLog | None = None
    """Lines of who asked for what; None: there is no audit log."""
    rules: RuleAccess | None = None
    """Access rules, where they are what decides."""
    cues: Cues | None = None
    """Faults that tests cause on cue; None: the broker is not for tests."""
    creations: dict[str, asyncio.Task[NamedTopics]] = field(default_factory=dict)
    """Creations under way of topics that Metadata named, by each name."""

    @property
    def settings(self) -> BrokerSettings:
        """Return the settings in force now."""
        return self.cell.current.settings.layers.in_force

    async def check_settings(self, settings: BrokerSettings) -> None:
        """ConfigError for settings of TLS that do not work."""
        if self.tls is not None:
            await self.tls.check(settings)

    async def take_settings(self) -> None:
        if self.tls is not None:
            await self.tls.take()
