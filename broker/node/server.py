"""One node: its cell, its listeners, and what it does from time to time. Starting and stopping, in order."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pqbroker.broker.ground.access import Access
from pqbroker.broker.ground.audit import AuditLog
from pqbroker.broker.ground.cues.clock import MovableClock
from pqbroker.broker.ground.cues.cues import Cues
from pqbroker.broker.ground.listeners import (
    DEFAULT_NAME,
    HTTP_NAME,
    Address,
    Connect,
    Listener,
    advertised_addresses,
    bind_all,
    close_all,
)
from pqbroker.broker.ground.log_tail import LogTail
from pqbroker.broker.ground.metrics import Metrics, Sample, Sampling
from pqbroker.broker.ground.open_files import connections_max
from pqbroker.broker.ground.series import PERIOD_S, Series
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.answer_budget import AnswerBudget
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.api_needs import API_NEEDS
from pqbroker.broker.kafka.apis.fetch_sessions import FetchSessions
from pqbroker.broker.kafka.cues.answer_faults import AnswerFaults
from pqbroker.broker.kafka.handlers.fetch import serve_fetch
from pqbroker.broker.kafka.net.connection import Connection
from pqbroker.broker.kafka.net.connections import Connections
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.login_gate import LoginEntrance, receiving_before_login
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.broker.kafka.served import APIS
from pqbroker.broker.node.access import access_of
from pqbroker.broker.node.cell_samples import cell_samples
from pqbroker.broker.node.cleaning_samples import cleaning_samples
from pqbroker.broker.node.figures import read_figures, whole_figures
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.broker.node.group_samples import group_samples
from pqbroker.broker.node.login_start import add_first_user, check_listeners, check_open_listeners
from pqbroker.broker.node.node_place import NodePlace
from pqbroker.broker.node.partition_samples import Sums
from pqbroker.broker.node.parts import Node
from pqbroker.broker.node.process_samples import process_samples
from pqbroker.broker.node.table_samples import (
    feed_samples,
    search_samples,
    sorted_samples,
    sql_samples,
    table_samples,
    transaction_samples,
)
from pqbroker.broker.node.transactional_samples import transactional_samples
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.cells.cell_owner import CellLost, CellOwner, OpenCell
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.services.logins.listener_logins import bearer_listeners
from pqbroker.broker.services.logins.logins import NO_KEYS, Logins
from pqbroker.broker.services.producer_ids import ProducerIds, allocate
from pqbroker.broker.services.quotas.client_quotas import ClientQuotas
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.node_shares import share_of
from pqbroker.storage.engine import Engine, PoolStats
from pqbroker.storage.faults import FaultyEngine
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.storage.tablets.scheme_acls import ACLS
from pqbroker.storage.tablets.scheme_objects import FEED_CREATORS, STORED_USERS
from pqbroker.storage.tablets.scheme_quotas import QUOTAS

if TYPE_CHECKING:
    from pqbroker.broker.ground.tls.handshakes import Handshakes
    from pqbroker.broker.ground.tls.tls_listeners import TlsListeners
    from pqbroker.broker.kafka.net.forwarding import Forwarder
    from pqbroker.broker.node.first_place import FirstPlace
    from pqbroker.broker.services.logins.web_keys import ListenerKeys

log = logging.getLogger(__name__)

PACKAGE = "pqbroker"
"""Below it are all loggers of ours."""
IDLE_LOOKS_PER_TIMEOUT = 4
STALL_LOOK_S = 1.0
RENEWAL_LOOK_S = 0.5
"""Seconds between looks for tablets that need a restart."""


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _held_samples(node: Node, receiving: Receiving) -> list[Sample]:
    """Return samples of what clients hold of this node."""
    return [
        Sample("request_bytes", receiving.budget.taken),
        Sample("unfinished_request_bytes", receiving.unfinished_bytes),
        Sample("fetch_sessions", len(node.sessions)),
        Sample("fetch_session_partitions", node.sessions.partitions),
        *_access_samples(node.rules),
        *_audit_samples(node.audit),
        *(Sample("quota_throttle_ms", spent_ms, (key,)) for key, spent_ms in node.quotas.throttled_ms.items()),
        Sample("groups_bytes", node.cell.current.coordinators.taken_bytes),
    ]


def _access_samples(rules: RuleAccess | None) -> list[Sample]:
    counts = (0, 0, 0) if rules is None else (len(rules.rules), len(rules.unreadable), rules.kept_decisions)
    names = ("access_rules", "access_rules_unreadable", "access_decisions_kept")
    return [Sample(name, count) for name, count in zip(names, counts, strict=True)]


def _audit_samples(audit: AuditLog | None) -> list[Sample]:
    counts = (0, 0, 0) if audit is None else (audit.written, audit.suppressed, audit.lost)
    names = ("written", "suppressed", "lost")
    return [Sample("audit_lines", count, (name,)) for name, count in zip(names, counts, strict=True)]


def _listeners_of(kafka: Address | Sequence[Listener] | NodePlace) -> tuple[Listener, ...]:
    if isinstance(kafka, NodePlace):
        return kafka.listeners
    return (Listener(DEFAULT_NAME, kafka),) if isinstance(kafka, Address) else tuple(kafka)


class Server:
    """A node serving Kafka on its listeners and HTTP on another address (None: no HTTP). start, then stop."""

    def __init__(
        self,
        settings: BrokerSettings,
        engine: Engine,
        kafka: Address | Sequence[Listener] | NodePlace,
        http: Address | Listener | None = None,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._settings = settings
        self.access: Access | None = None
        """Decides who may do what, if it is given before the start; None: what the settings say."""
        self._engine = engine
        self._clock = clock
        self._cues: Cues | None = None
        if settings.test_door:
            self._clock = movable = MovableClock(clock)
            store = engine if isinstance(engine, FaultyEngine) else None
            self._cues = Cues(AnswerFaults(APIS, serve_fetch, self._switch), movable, store)
        self._servers: list[asyncio.Server] = []
        self._sums = Sums()
        self._log_tail = LogTail()
        self._tasks: list[asyncio.Task[None]] = []
        self._http_close: Callable[[], Awaitable[None]] | None = None
        self._place = kafka if isinstance(kafka, NodePlace) else None
        """None: the broker has one node."""
        self._own_share = share_of(settings, 1 if self._place is None else self._place.count)
        """Settings with this node's parts of what several nodes share."""
        self._member = None if self._place is None else self._place.member
        self.listeners = _listeners_of(kafka)
        self._http = Listener(HTTP_NAME, http) if isinstance(http, Address) else http
        self._tls = self._encrypted()
        """None: no listener is encrypted."""

    node: Node
    _first: "FirstPlace | None" = None
    """The first node's side of the links to others."""
    _audit: AuditLog | None = None
    _keys: "Mapping[str, ListenerKeys]" = NO_KEYS
    """Keys by which listeners check tokens of OAUTHBEARER, by their names."""
    _deciding: Access | None
    """Decides who may do what; None: everybody may do everything."""
    failed: "asyncio.Future[CellLost]"
    """Resolves when the cell is lost for good; the process should stop and exit with an error."""

    @property
    def kafka_address(self) -> Address:
        """The first listener's."""
        return self.listeners[0].address

    @property
    def http_address(self) -> Address | None:
        return None if self._http is None else self._http.address

    @property
    def http_url(self) -> str:
        """HOST:PORT of the HTTP address, with https:// before it where it is encrypted."""
        return str(self._http)

    async def start(self, first_user: FirstUser | None = None) -> None:
        """Open the cell, make a super user unless it exists, and listen.

        EngineError, ShardLost, CannotListen; nothing is left open then.

        AddressError and ConfigError for invalid settings.
        """
        loop = asyncio.get_running_loop()
        advertised_addresses(self.listeners, self._settings.advertised_listeners)  # before anything is open
        check_listeners(self._settings, self.listeners)
        if self._tls is not None:
            self._tls.load(self._settings)
        bound = bind_all(self.listeners)
        self.listeners = tuple(listener for listener, _ in bound)
        advertised = advertised_addresses(self.listeners, self._settings.advertised_listeners)
        logging.getLogger(PACKAGE).addHandler(self._log_tail)
        try:
            if self._member is not None:
                self._member.start()
            cells = None if self._place is None else self._place.cells
            self._cell = CellOwner(self._engine, self._settings, self._clock, cells)
            self._audit = AuditLog(self._settings) if self._settings.audit_file else None
            self._deciding = self.access or access_of(self._settings, lambda: self.node.settings)
            await self._cell.open()
            await self._begin_logins(first_user)
        except BaseException:
            close_all(bound)
            if self._member is not None:
                await self._member.stop()
            self._end_audit()
            logging.getLogger(PACKAGE).removeHandler(self._log_tail)
            raise
        self.failed = self._cell.failed
        receiving = Receiving(self._own_share, loop)
        self.node = self._node(loop, Metrics(partial(self._sample, receiving)))
        if self._tls is not None:
            self._tls.begin(loop, lambda: self.node.settings, self._audit)
        self._follow_scheme()
        self._dispatcher = Dispatcher(self.node, APIS)
        self._forwarder, self._first = self._make_forwarder(), await self._open_door()
        if self._member is not None:
            self._member.serve(self.node)
        before_login = await self._receiving_before_login()
        for listener, sockets in bound:
            served = replace(listener, advertised=advertised.get(listener.name))
            connect = self._under(listener, self._connecting(served, receiving, before_login))
            self._servers += [await loop.create_server(connect, sock=listening) for listening in sockets]
        self._begin_periodic(loop)
        if self._http is not None:
            await self._start_http(self._http)

    def _begin_periodic(self, loop: asyncio.AbstractEventLoop) -> None:
        looks = [self._sample_loop_lag(), self._close_idle(), self._cut_stalled()]
        if self._tls is not None:
            looks.append(self._tls.watch())
        if self._member is not None and self._place is not None:
            member = self._member
            looks += [member.watch(), member.follow(self._serving), member.keep_reporting(self.node)]
            looks.append(member.keep_telling(self._serving, self._place.changed))
        if self._first is not None:
            looks += [self._first.keep_telling(), self._first.keep_placing(), self._first.copies.run()]
        works = [self.node.cleaner.run(self.node), self.node.health.run(self.node)]
        if self._member is None:  # a table has one feed, whose progress one node knows
            works.append(self.node.feeding.run(self.node))
        periodic = (self._retain(), self._trim_queues(), self._renew(), self._take_series(), *works, *looks)
        for work in (self._cell.watch(self._opened), *periodic):
            task = loop.create_task(work)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Drain: take no connection more, answer what is in work within the time allowed, close the cell."""
        if self._cues is not None:
            self._cues.answers.clear()
        for server in self._servers:
            server.close()
        if self._tls is not None:
            self._tls.close()
        self._cell.current.coordinators.close()
        self._cell.current.topics.offsets.held.close()
        await self.node.connections.drain(self._settings.drain_timeout_ms / 1000)
        if self._first is not None:
            await self._first.stop()
        if self._member is not None:
            await self._member.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._http_close is not None:
            await self._http_close()
        self.node.logins.close()
        await self.node.workers.close()
        await self.node.searchers.close()
        await self._cell.close()
        self._end_audit()
        logging.getLogger(PACKAGE).removeHandler(self._log_tail)

    async def _begin_logins(self, first_user: FirstUser | None) -> None:
        """Make the first user; check that nobody comes in without a login who should not. The cell closes if so."""
        scheme = self._cell.current.scheme
        try:
            if first_user is not None:
                await add_first_user(scheme, first_user, self._clock())
            check_open_listeners(self._settings, self.listeners, self._http, scheme)
            await self._load_keys()
        except BaseException:
            await self._cell.close()
            raise

    async def _load_keys(self) -> None:
        """Read the keys by which listeners check tokens; what does so is loaded with the first of them."""
        names = bearer_listeners(self._settings, self.listeners, self._http)
        if names:
            from pqbroker.broker.node.bearer_start import load_keys

            self._keys = await load_keys(self._settings, names)

    async def _receiving_before_login(self) -> Receiving | None:
        """Return the receiving side of clients that have not logged in; None where no listener has a login."""
        if not any(listener.has_login for listener in self.listeners):
            return None
        if not self._cell.current.cell.reading_only:
            await self.node.logins.load()
        return receiving_before_login(self._settings, self.node.loop)

    def _connecting(
        self, listener: Listener, receiving: Receiving, before_login: Receiving | None
    ) -> Callable[[], Connection]:
        """Return what makes the connections of a listener."""
        node, dispatcher = self.node, self._forwarder or self._dispatcher
        if not listener.has_login or before_login is None:
            return partial(Connection, node, dispatcher, receiving, node.connections, listener)
        entrance = LoginEntrance(dispatcher, receiving, Turns(node.loop))
        return partial(Connection, node, entrance, before_login, node.connections, listener)

    async def _open_door(self) -> "FirstPlace | None":
        """Open the door of the first of several nodes."""
        if self._place is None or self._member is not None:
            return None
        from pqbroker.broker.node.first_place import FirstPlace

        first = FirstPlace(self._place, self.node, self._dispatcher)
        await first.start()
        return first

    def _make_forwarder(self) -> "Forwarder | None":
        """Return what forwards the requests that this node does not serve; None: it serves them all."""
        if self._member is None:
            return None
        from pqbroker.broker.kafka.net.forwarding import Forwarder
        from pqbroker.broker.kafka.net.mirrored_topics import is_of_node, knows_all

        def knows(frame: memoryview) -> bool:
            return is_of_node(self._settings.node_id, frame) or knows_all(lambda: self._cell.current.topics, frame)

        return Forwarder(self._dispatcher, self._member, knows)

    def _end_audit(self) -> None:
        if self._audit is not None:
            self._audit.close()

    def keep_homes(self) -> None:
        """Move no cell between nodes any more: all of them stop."""
        if self._first is not None:
            self._first.keep_homes()

    async def empty_node(self, node: int) -> None:
        """Have others run the cells of a node that is to be restarted. PeerRefused."""
        assert self._first is not None
        await self._first.empty(node)

    async def fill_node(self, node: int) -> None:
        """Give a node that was restarted its cells again. PeerRefused."""
        assert self._first is not None
        await self._first.fill(node)

    def cut(self) -> None:
        """Cut every connection of Kafka clients, as the end of a process does: nothing more is answered."""
        for connection in self.node.connections:
            connection.abort()

    def _switch(self, api: Api) -> None:
        """Serve an API as given from the next request on."""
        self._dispatcher.switch(api)
        self.node.connections.close_lanes()

    def _sample(self, receiving: Receiving) -> Sampling:
        settings = self._settings
        taken = yield from cell_samples(self._cell.current, settings.metrics_partitions_max, self._sums)
        taken += yield from group_samples(self.node)
        yield
        topics = self._cell.current.topics
        known = [topic for name in topics.names(or_static=True) if (topic := topics.get(name, or_static=True))]
        taken += yield from transactional_samples(self._cell.current.transactional_producers, known)
        taken += yield from table_samples(known, self.node.metrics.tables)
        taken += yield from sorted_samples(self._cell.current.sorted_tables)
        taken += yield from feed_samples(self.node)
        taken += yield from cleaning_samples(self.node, known)
        taken += transaction_samples(self._cell.current.commits)
        taken += sql_samples(self.node.workers)
        taken += search_samples(self.node.searchers)
        taken += [Sample("conditions", count, (kind,)) for kind, count in self.node.health.by_kind(self.node).items()]
        taken += process_samples(self.node.started_ms)
        if self._tls is not None:
            taken += self._tls.samples(time.time())
        return [*taken, *_held_samples(self.node, receiving), Sample("durability", 1, (settings.durability,))]

    def _node(self, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> Node:
        """The parts of a node whose cell is open."""
        settings = self._settings
        metrics.cell_openings += 1
        connections = Connections(
            loop, metrics, lambda: connections_max(self.node.settings), lambda: self.node.settings,
            lambda host: self.node.quotas.connection_pause_ms(host),
        )  # fmt: skip
        return Node(
            cell=self._cell,
            loop=loop,
            clock=self._clock,
            metrics=metrics,
            sessions=FetchSessions(settings.fetch_sessions_max, settings.fetch_session_partitions_max, self._clock),
            producer_ids=ProducerIds(lambda: allocate(self._cell.current.scheme)),
            cluster_id=self._cell.current.scheme.cluster_id,
            leaders=self._leaders(),
            turns=Turns(loop),
            answers=AnswerBudget(self._own_share.unsent_bytes_max, loop.time),
            connections=connections,
            logins=Logins(
                loop, lambda: self._cell.current.scheme, lambda: self.node.settings, self._clock, self._keys
            ),
            audit=self._audit,
            quotas=ClientQuotas(settings, loop.time, connections.close_lanes),
            pools=self._pools,
            listeners=self.listeners,
            http=lambda: self._http,
            others=lambda: self._first,
            access=self._deciding,
            tls=self._tls,
            rules=self._deciding if isinstance(self._deciding, RuleAccess) else None,
            cues=self._cues,
            started_ms=self._clock(),
            log_tail=self._log_tail,
            series=Series(partial(self._read_figures, metrics)),
            api_names={api.key: api.name for api in APIS},
            api_needs=API_NEEDS,
            api_ranges=tuple(api.advertised for api in APIS),
        )

    def _leaders(self) -> Leaders:
        own, place = self._settings.node_id, self._place
        if place is None:
            return Leaders(own)
        return Leaders(own, place.ids(own), place.elsewhere, lambda: self._cell.current.hive.homes)

    @property
    def handshakes(self) -> "Handshakes | None":
        """Handshakes under way, while it serves; None: no listener is encrypted."""
        return None if self._tls is None else self._tls.handshakes

    def _encrypted(self) -> "TlsListeners | None":
        """Return what serves the listeners that are encrypted; its modules are loaded with the first."""
        listeners = (*self.listeners, *([self._http] if self._http else ()))
        if not any(listener.protocol.is_encrypted for listener in listeners):
            return None
        from pqbroker.broker.ground.tls.tls_listeners import TlsListeners

        return TlsListeners(listeners)

    def _under(self, listener: Listener, connect: Connect, plain: Callable[[bytes], bytes] | None = None) -> Connect:
        """Return what makes the protocol of a listener's connections, under TLS where it is encrypted."""
        return connect if self._tls is None else self._tls.under(listener, connect, plain)

    async def _start_http(self, listener: Listener) -> None:
        from pqbroker.broker.web.endpoints import start_http

        try:
            self._http_close, address = await start_http(self.node, listener.address, partial(self._under, listener))
            self._http = replace(listener, address=address)
        except BaseException:
            await self.stop()
            raise

    def _opened(self) -> None:
        """The cell was lost, and is open again."""
        self.node.metrics.cell_openings += 1
        self._follow_scheme()
        if self._first is not None:
            self._first.begin_again()

    def _follow_scheme(self) -> None:
        """Have access rules and quotas be those of the scheme that is open now."""
        scheme, quotas = self._cell.current.scheme, self.node.quotas
        quotas.load(scheme.rows(QUOTAS))
        scheme.follow(QUOTAS, quotas.follow)
        if isinstance(self._deciding, RuleAccess):
            self._deciding.load(scheme.rows(ACLS))
            scheme.follow(ACLS, self._deciding.follow)
            self._deciding.load_users(scheme.rows(STORED_USERS))
            scheme.follow(STORED_USERS, self._deciding.follow_user)
        if self.node.access is not None and scheme.rows(FEED_CREATORS):
            from pqbroker.broker.services.sorted_tables.change_feeds import bar_feeds  # loaded where there is a feed

            bar_feeds(self.node)

    def _read_figures(self, metrics: Metrics) -> Mapping[str, float]:
        """Return the main figures of all nodes that serve."""
        own = read_figures(metrics, self._cell.current)
        return own if self._first is None else whole_figures(own, self._first.states().values())

    def _pools(self) -> tuple[PoolStats, ...]:
        """Return the pools of the system cell; of a node that has it in memory alone those of a data cell."""
        opened = self._cell.current
        if self._member is None:
            return opened.cell.stats().pools
        return next((host.cell.stats().pools for cell, host in opened.cells.hosts() if cell != SYSTEM_CELL), ())

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A node without its periodic work would look well and fill its disk: a defect there ends it."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            log.critical("periodic work failed; this is a defect", exc_info=error)
            self.failed.set_result(CellLost("periodic work failed; the log says how"))

    def _serving(self) -> OpenCell:
        return self._cell.current

    async def _retain(self) -> None:
        while True:
            await asyncio.sleep(self._settings.retention_check_interval_ms / 1000)
            await self._cell.retain(None if self._first is None else self._first.look_after_staged)

    async def _trim_queues(self) -> None:
        while True:
            await asyncio.sleep(self.node.settings.queue_trim_interval_ms / 1000)
            await self._cell.trim_queues()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_LOOK_S)
            await self._cell.renew()

    async def _take_series(self) -> None:
        while True:
            self.node.series.take(self._clock())
            await asyncio.sleep(PERIOD_S)

    async def _sample_loop_lag(self) -> None:
        loop, period_s = self.node.loop, self._settings.loop_lag_sample_ms / 1000
        while True:
            due, computed_s = loop.time() + period_s, time.thread_time()
            await asyncio.sleep(period_s)
            self.node.metrics.observe_loop_lag(max(0.0, loop.time() - due))
            self.node.metrics.observe_loop_turn(time.thread_time() - computed_s - period_s)

    async def _close_idle(self) -> None:
        idle_ms = self._settings.connections_max_idle_ms
        if idle_ms < 0:
            return
        while True:
            await asyncio.sleep(max(idle_ms / 1000 / IDLE_LOOKS_PER_TIMEOUT, 0.01))
            self.node.connections.close_idle(idle_ms / 1000)

    async def _cut_stalled(self) -> None:
        """Cut peers that do not take their answers, while the budget of answers is used up and others wait."""
        while True:
            await asyncio.sleep(STALL_LOOK_S)
            self.node.answers.look()
            if self.node.answers.is_exceeded:
                self.node.connections.cut_stalled(self._settings.answer_stall_ms / 1000)
