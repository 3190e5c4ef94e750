"""One node: its cell, its listeners, and what it does from time to time. Starting and stopping, in order."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from pqbroker.broker.ground.access import Access
from pqbroker.broker.ground.cues.clock import MovableClock
from pqbroker.broker.ground.cues.cues import Cues
from pqbroker.broker.ground.listeners import DEFAULT_NAME, Address, Listener, advertised_addresses, bind_all, close_all
from pqbroker.broker.ground.log_tail import LogTail
from pqbroker.broker.ground.metrics import Metrics, Sample, Sampling
from pqbroker.broker.ground.open_files import connections_max
from pqbroker.broker.ground.series import PERIOD_S, Series
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.answer_budget import AnswerBudget
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.fetch_sessions import FetchSessions
from pqbroker.broker.kafka.cues.answer_faults import AnswerFaults
from pqbroker.broker.kafka.handlers.fetch import serve_fetch
from pqbroker.broker.kafka.net.connection import Connection
from pqbroker.broker.kafka.net.connections import Connections
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.broker.kafka.served import APIS
from pqbroker.broker.node.cell_samples import cell_samples
from pqbroker.broker.node.cleaning_samples import cleaning_samples
from pqbroker.broker.node.figures import read_figures
from pqbroker.broker.node.group_samples import group_samples
from pqbroker.broker.node.partition_samples import Sums
from pqbroker.broker.node.parts import Node
from pqbroker.broker.node.process_samples import process_samples
from pqbroker.broker.node.table_samples import (
    feed_samples,
    sorted_samples,
    sql_samples,
    table_samples,
    transaction_samples,
)
from pqbroker.broker.node.transactional_samples import transactional_samples
from pqbroker.broker.services.cells.cell_owner import CellLost, CellOwner
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.services.producer_ids import ProducerIds
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.engine import Engine
from pqbroker.storage.faults import FaultyEngine

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
        Sample("groups_bytes", node.cell.current.coordinators.taken_bytes),
    ]


class Server:
    """A node serving Kafka on its listeners and HTTP on another address (None: no HTTP). start, then stop."""

    def __init__(
        self,
        settings: BrokerSettings,
        engine: Engine,
        kafka: Address | Sequence[Listener],
        http: Address | None = None,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._settings = settings
        self.access: Access | None = None
        """Decides who may do what, if it is given before the start; None: everybody everything."""
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
        self.listeners = (Listener(DEFAULT_NAME, kafka),) if isinstance(kafka, Address) else tuple(kafka)
        self.http_address = http

    node: Node
    failed: "asyncio.Future[CellLost]"
    """Resolves when the cell is lost for good; the process should stop and exit with an error."""

    @property
    def kafka_address(self) -> Address:
        """The first listener's."""
        return self.listeners[0].address

    async def start(self) -> None:
        """Open the cell and listen. EngineError, ShardLost, CannotListen; nothing is left open then.

        AddressError and ConfigError for invalid settings.
        """
        loop = asyncio.get_running_loop()
        advertised = advertised_addresses(self.listeners, self._settings.advertised_listeners)
        bound = bind_all(self.listeners)
        self.listeners = tuple(listener for listener, _ in bound)
        logging.getLogger(PACKAGE).addHandler(self._log_tail)
        try:
            self._cell = CellOwner(self._engine, self._settings, self._clock)
            await self._cell.open()
        except BaseException:
            close_all(bound)
            logging.getLogger(PACKAGE).removeHandler(self._log_tail)
            raise
        self.failed = self._cell.failed
        receiving = Receiving(self._settings, loop)
        self.node = self._node(loop, Metrics(partial(self._sample, receiving)))
        self._dispatcher = dispatcher = Dispatcher(self.node, APIS)
        for listener, sockets in bound:
            served = replace(listener, advertised=advertised.get(listener.name))
            connect = partial(Connection, self.node, dispatcher, receiving, self.node.connections, served)
            self._servers += [await loop.create_server(connect, sock=listening) for listening in sockets]
        looks = (self._sample_loop_lag(), self._close_idle(), self._cut_stalled())
        works = (self.node.feeding.run(self.node), self.node.cleaner.run(self.node), self.node.health.run(self.node))
        periodic = (self._retain(), self._renew(), self._take_series(), *works, *looks)
        for work in (self._cell.watch(self._opened), *periodic):
            task = loop.create_task(work)
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        if self.http_address is not None:
            await self._start_http(self.http_address)

    async def stop(self) -> None:
        """Drain: take no connection more, answer what is in work within the time allowed, close the cell."""
        if self._cues is not None:
            self._cues.answers.clear()
        for server in self._servers:
            server.close()
        self._cell.current.coordinators.close()
        await self.node.connections.drain(self._settings.drain_timeout_ms / 1000)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._http_close is not None:
            await self._http_close()
        await self.node.workers.close()
        await self._cell.close()
        logging.getLogger(PACKAGE).removeHandler(self._log_tail)

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
        taken += yield from transactional_samples(self._cell.current.transactional_producers)
        yield
        topics = self._cell.current.topics
        known = [topic for name in topics.names(or_static=True) if (topic := topics.get(name, or_static=True))]
        taken += yield from table_samples(known, self.node.metrics.tables)
        taken += yield from sorted_samples(self._cell.current.sorted_tables)
        taken += yield from feed_samples(self.node)
        taken += yield from cleaning_samples(self.node, known)
        taken += transaction_samples(self._cell.current.commits)
        taken += sql_samples(self.node.workers)
        taken += [Sample("conditions", count, (kind,)) for kind, count in self.node.health.by_kind(self.node).items()]
        taken += process_samples(self.node.started_ms)
        return [*taken, *_held_samples(self.node, receiving), Sample("durability", 1, (settings.durability,))]

    def _node(self, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> Node:
        """The parts of a node whose cell is open."""
        settings = self._settings
        metrics.cell_openings += 1
        return Node(
            cell=self._cell,
            loop=loop,
            clock=self._clock,
            metrics=metrics,
            sessions=FetchSessions(settings.fetch_sessions_max, settings.fetch_session_partitions_max, self._clock),
            producer_ids=ProducerIds(self._producer_id_block),
            cluster_id=self._cell.current.scheme.cluster_id,
            leaders=Leaders(settings.node_id),
            turns=Turns(loop),
            answers=AnswerBudget(settings.unsent_bytes_max, loop.time),
            connections=Connections(
                loop, metrics, lambda: connections_max(self.node.settings), lambda: self.node.settings
            ),
            pools=lambda: self._cell.current.cell.stats().pools,
            listeners=self.listeners,
            access=self.access,
            cues=self._cues,
            started_ms=self._clock(),
            log_tail=self._log_tail,
            series=Series(lambda: read_figures(metrics, self._cell.current)),
            api_names={api.key: api.name for api in APIS},
            api_ranges=tuple(api.advertised for api in APIS),
        )

    async def _start_http(self, address: Address) -> None:
        from pqbroker.broker.web.endpoints import start_http

        try:
            self._http_close, self.http_address = await start_http(self.node, address)
        except BaseException:
            await self.stop()
            raise

    async def _producer_id_block(self) -> range:
        return await self._cell.current.scheme.producer_id_block()

    def _opened(self) -> None:
        """The cell was lost, and is open again."""
        self.node.metrics.cell_openings += 1

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A node without its periodic work would look well and fill its disk: a defect there ends it."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            log.critical("periodic work failed; this is a defect", exc_info=error)
            self.failed.set_result(CellLost("periodic work failed; the log says how"))

    async def _retain(self) -> None:
        while True:
            await asyncio.sleep(self._settings.retention_check_interval_ms / 1000)
            await self._cell.retain()

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
