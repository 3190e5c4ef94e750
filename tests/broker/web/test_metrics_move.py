"""Every metric moves when what it counts does: a node is kept busy, and scraped after each thing that it did."""

import asyncio
import os
import signal
import struct
from collections.abc import Awaitable, Callable

import pytest

from pqbroker.broker.ground.metrics import FAMILIES
from pqbroker.broker.kafka.net.connection_limits import IDLE_S
from pqbroker.broker.services.cleaning.cleaning_pass import CleaningPass
from pqbroker.broker.services.cleaning.passes import PassFailed
from pqbroker.broker.services.topics import staged_rows
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.storage.pool_status import Colour
from tests.broker.conftest import make_batch, produce_request, until
from tests.broker.kafka.handlers.test_delete_records import delete
from tests.broker.kafka.handlers.test_fetch import fetch_request
from tests.broker.kafka.transacting import WireProducer
from tests.broker.services.coordination.classic.test_handlers import form
from tests.broker.web.conftest import Web
from tests.broker.web.test_metrics import Values, commit_offsets, is_blocked, scrape
from tests.broker.web.test_sorted_background import flush, holds, set_attributes, tablet_of
from tests.broker.web.test_sorted_tables import create, insert, look_up, row

STILL = {
    "compaction_moved_bytes", "segment_emptying_moved_bytes", "commit_syncs", "pool_trash_bytes",  # what memory has not
    "cell_unreadable_places", "cell_reading_only",  # what only a disk has, tests of it show them
    "connections_unread",  # what needs all memory for answers, tests/attacks/test_shares.py shows it
    "durability", "build_info", "process_start_time_seconds", "process_max_fds",  # what a node is set to
    "group_lag_summed",
    "commits_over_nodes",  # needs several nodes, node/test_commits_over_nodes.py shows it
    "transaction_participants_unfinished",  # is ended at once, but for faults
    "memory_pass_worst_seconds",  # comes when much has grown, and not here
    # Locks and queues have tests of their own: node/test_tls.py, kafka/net/test_logins.py, web/test_quotas.py, …
    "tls_handshakes", "tls_handshakes_under_way", "tls_certificate_days_left", "logins", "login_refusals",
    "sessions_expired", "access_rules", "access_rules_unreadable", "access_decisions_kept", "audit_lines",
    "quota_throttle_ms", "queue_consumers", "queue_advances", "queue_skipped_rows", "queue_pulls", "queue_auto_trims",
    "queue_offset_conflicts", "queue_refused_pushes", "stable_offset_oldest_seconds",
}  # fmt: skip
"""These do not."""
MAY_MOVE = {
    "loop_turn_worst_seconds", "process_open_fds", "process_resident_memory_bytes", "process_threads",
    "process_virtual_memory_bytes",
}  # fmt: skip
"""The worst turn may have been the start's; the process may have been as large before."""
SETTINGS = {
    "cache_bytes": 400_000, "head_bytes": 1 << 20, "write_border_bytes": 1 << 20, "group_initial_rebalance_delay_ms": 0,
    "max_connections": 100, "producer_id_expiration_ms": 1, "unfinished_bytes_max": 6 << 20,
}  # fmt: skip
CHUNK = bytes(300_000)


class Hour:
    """What a node is made to do, a scrape after each."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.scrapes: list[Values] = []

    async def write(self) -> None:
        """Batches of an idempotent producer, one of them twice and one out of order; merges, bodies, full heads."""
        node = self.web.node
        for number in range(40):
            value = CHUNK if number % 2 else b"v"
            await node.produce("t", value, producer_id=7, producer_epoch=0, base_sequence=number)
        await node.produce("t", b"v", producer_id=7, producer_epoch=0, base_sequence=39)
        await node.produce("t", b"v", producer_id=7, producer_epoch=0, base_sequence=99)
        await node.produce("third", *[CHUNK] * 3)

    async def forget_a_producer(self) -> None:
        """For want of room, and the newest records of another partition too."""
        for producer_id in (8, 9):
            await self.web.node.produce("other", CHUNK, producer_id=producer_id, producer_epoch=0, base_sequence=0)

    async def read(self) -> None:
        client = await self.web.node.connect()
        for offset in range(40):
            await client.ask(fetch_request((0, offset)), 12)
        client.send(fetch_request((0, 40), max_wait_ms=10_000, min_bytes=1 << 20), 12)
        client.send(MetadataRequest(topics=[]))
        await client.receive()
        await client.receive()

    async def refuse(self) -> None:
        self.web.node.engine.faults.refuse_next()
        await self.web.node.produce("t", b"v")

    async def hold(self) -> None:
        """Writes that wait, over the border and over a quota."""
        clients = [await self.web.node.connect() for _ in range(2)]
        self.web.node.engine.faults.hold()
        received = self.web.node.server.node.metrics.bytes_in
        for number, client in enumerate(clients, 1):
            client.send(produce_request("t", make_batch(bytes(900_000))), 9)
            wanted = received + number * 900_000
            await until(lambda wanted=wanted: self.web.node.server.node.metrics.bytes_in > wanted)  # type: ignore[misc]
        await self.scrape()
        self.web.node.engine.faults.release()
        for client in clients:
            await client.receive()

    async def trim(self) -> None:
        await delete(await self.web.node.connect(), (0, 30))

    async def group(self) -> None:
        await form(await self.web.node.connect())
        await commit_offsets(self.web, "g", ("t", 0, 1))

    async def produce_in_a_transaction(self) -> None:
        """A transaction of a Kafka producer, which is open for a second."""
        producer = WireProducer(await self.web.node.connect())
        await producer.begin()
        await producer.add(("third", 0))
        self.web.node.clock.now_ms += 1000
        await self.scrape()
        await producer.end(is_commit=True)
        await producer.until_state("CompleteCommit")

    async def drop(self) -> None:
        """A topic, whose tablet is blocked then."""
        topic = self.web.node.server.node.cell.current.topics.get("other")
        assert topic is not None
        (tablet,) = topic.tablets.values()
        await tablet.kv.storage.collect_garbage(0, 1, 1)
        await self.web.node.server.node.cell.current.topics.delete("other")
        await until(lambda: is_blocked(tablet.kv.storage))

    async def break_the_protocol(self) -> None:
        client = await self.web.node.connect()
        client.send_bytes(b"\xff" * 8)
        assert await client.is_closed_by_peer()

    async def stop_halfway(self) -> None:
        """Two requests that do not arrive whole, for which there is not enough room."""
        metrics = self.web.node.server.node.metrics
        first, second = [await self.web.node.connect() for _ in range(2)]
        for client, size in ((first, 1 << 20), (second, 11 << 18)):
            wanted = metrics.bytes_in + 4 + size
            client.send_bytes(struct.pack(">i", 3 << 20) + bytes(size))
            await until(lambda wanted=wanted: metrics.bytes_in >= wanted)  # type: ignore[misc]
        await self.scrape()
        first.send_bytes(bytes(7 << 18))
        assert await second.is_closed_by_peer()

    async def open_a_session(self) -> None:
        client = await self.web.node.connect()
        request = fetch_request((0, 40))
        request.session_epoch = 0
        assert (await client.ask(request, 12)).session_id

    async def connect_too_often(self) -> None:
        metrics = self.web.node.server.node.metrics
        while not metrics.connections_refused:
            await self.web.node.connect()
            await asyncio.sleep(0)
        await asyncio.sleep(IDLE_S)  # from here on those that ask nothing give way
        while not metrics.connections_gave_way:
            await self.web.node.connect()
            await asyncio.sleep(0)

    async def run_out_of_room(self) -> None:
        self.web.node.engine.tell_colour(Colour.ORANGE_OUT_SPACE)

    async def lose_the_cell(self) -> None:
        self.web.node.engine.tell_colour(None)
        self.web.node.engine.faults.lose_next()
        await self.web.node.produce("t", b"v")
        await until(lambda: self.web.node.server.node.metrics.cell_openings == 2)
        await self.web.ask("POST", "/v1/cells", {})

    async def tables(self) -> None:
        """A table that is filled, read and frozen; a batch of staged rows, written in two steps; a static table."""
        web, table = self.web, "/v1/tables/rows"
        schema = [{"name": "id", "type": "int64"}]
        await web.ask("POST", "/v1/tables", {"path": "//rows", "schema": schema, "tablet_count": 2})
        await web.ask("POST", "/v1/tables", {"path": "//still", "schema": schema, "dynamic": False})
        await web.ask("POST", f"{table}/rows", {"rows": [{"id": 1}]})
        await web.ask("GET", f"{table}/rows?tablet_index=0")
        await web.ask("GET", f"{table}/rows?tablet_index=1")
        await web.ask("POST", f"{table}/freeze", {"first_tablet_index": 1})
        await self.scrape()
        batch = {"session": "s", "sequence": 1}
        staged = f"{table}/staged-rows"
        _, told = await web.ask("POST", staged, {**batch, "rows": [{"id": 2}]})
        await self.scrape()
        pieces = {**batch, "pieces": [piece["name"] for piece in told["pieces"]]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(staged_rows, "STEP_S", -1.0)
            _, told = await web.ask("POST", f"{staged}/commit", pieces)
            assert not told["done"]
        await self.scrape()
        await web.ask("POST", f"{staged}/commit", pieces)

    async def sort(self) -> None:
        """A sorted table that is written, flushed until writes are blocked, compacted and looked up; a lost worker."""
        web = self.web
        await create(web, attributes={"max_overlapping_store_count": 3, "enable_compaction_and_partitioning": False})
        tables = web.node.server.node.cell.current.sorted_tables
        background, share = tables.background, tables.share
        for number in range(3):
            await insert(web, row("a", 1, count=number))
            await holds(web, lambda: share.stores_bytes > 0)
            await self.scrape()
            await flush(web)
        for _ in range(2):
            await look_up(web, row("a", 1))
        await holds(web, lambda: bool(background.blocks.tablets))
        await self.scrape()
        workers = share.workers
        for pid in workers.pids:
            os.kill(pid, signal.SIGKILL)
        await set_attributes(web, enable_compaction_and_partitioning=True)
        await holds(web, lambda: bool(background.history.running))
        await self.scrape()
        await holds(web, lambda: len(tablet_of(web).structure.chunks) == 1)

    async def transact(self) -> None:
        """A transaction over tables of two cells, one that is aborted, and one whose time is over."""
        web, path = self.web, "/v1/transactions"
        await web.ask("POST", "/v1/bundles", {"name": "far"})
        await web.ask("POST", "/v1/cells", {"bundle": "far"})
        schema = [{"name": "id", "type": "int64"}]
        await web.ask("POST", "/v1/tables", {"path": "//far", "schema": schema, "bundle": "far"})
        names = [(await web.ask("POST", path, {}))[1]["transaction"] for _ in range(3)]
        await self.scrape()
        writes = [{"table": "far", "rows": [{"id": 1}]}, {"table": "shop.stock", "rows": [row("a", 2)]}]
        status, _ = await web.ask("POST", f"{path}/{names[0]}/commit", {"writes": writes})
        assert status == 200
        await web.ask("POST", f"{path}/{names[1]}/abort", {})
        web.node.clock.now_ms += 60_000
        assert (await web.ask("GET", f"{path}/{names[2]}"))[1]["state"] == "aborted"

    async def materialize(self) -> None:
        """A topic feeds a sorted table with a change feed: a row, and a record that is none."""
        web = self.web
        schema = [{"name": "key", "type": "utf8", "required": True, "sort_order": "ascending"}]
        schema.append({"name": "value", "type": "utf8"})
        await web.ask("POST", "/v1/topics", {"name": "fed"})
        latest = {"path": "//latest", "schema": schema, "attributes": {"changes": "latest-changes"}}
        status, answer = await web.ask("POST", "/v1/tables", latest)
        assert status == 201, answer
        await web.ask("POST", "/v1/topics/fed/records", {"records": [{"key": "a", "value": "1"}, {"value": "2"}]})
        await web.ask("POST", "/v1/materializations", {"topic": "fed", "table": "latest"})
        await self.scrape()
        await until(lambda: web.node.server.node.feeding.counters.records > 0)
        await web.ask("POST", "/v1/materializations/latest/pause", {})
        await web.ask("POST", "/v1/topics/fed/records", {"records": [{"key": "a", "value": "3"}]})

    async def clean(self) -> None:
        """A compacted topic loses old records, then a tombstone; a worker is lost, a pass fails, another is stopped."""
        web, path, cleaner = self.web, "/v1/topics/kept", self.web.node.server.node.cleaner
        config = {"cleanup.policy": "compact", "pq.low.watermark.bytes": 1024, "delete.retention.ms": 0}
        await web.ask("POST", "/v1/topics", {"name": "kept", "config": config})
        for value in ("1" * 900, "2" * 900, "3", None):
            records = [{"key": "a", "value": value}, {"key": "b", "value": "4" * 300}]
            status, answer = await web.ask("POST", f"{path}/records", {"records": records})
            assert status == 201, answer
        await self.scrape()
        for _ in "12":
            await self.pass_over(path)
        while not cleaner.counters.workers_lost:
            for pid in cleaner.worker_pids:
                os.kill(pid, signal.SIGKILL)
            await self.pass_over(path)
        with pytest.MonkeyPatch.context() as patch:
            for end in (fail, leave):
                patch.setattr(CleaningPass, "run", end)
                await self.pass_over(path)
                await self.scrape()

    async def pass_over(self, path: str) -> None:
        """Have the cleaner go over a topic, and wait for its end."""
        cleaner = self.web.node.server.node.cleaner
        before = len(cleaner.history.ended)
        await self.web.ask("POST", f"{path}/clean", {})
        await until(lambda: bool(cleaner.running) or len(cleaner.history.ended) > before)
        await self.scrape()
        await until(lambda: len(cleaner.history.ended) > before)

    async def query(self) -> None:
        """A query that waits for its worker, one that is refused, and one whose worker is lost."""
        workers = self.web.node.server.node.workers
        asking = asyncio.create_task(self.ask("SELECT 1"))
        await until(lambda: workers.slots.running > 0)
        await self.scrape()
        assert await asking == 200
        assert await self.ask("DELETE FROM rows") == 400
        await self.scrape()
        for pid in workers.pids:
            os.kill(pid, signal.SIGKILL)
        while not workers.counters.workers_lost:
            await self.ask("SELECT 1")

    async def search(self) -> None:
        """A search that waits for its worker, one that is refused, and one whose worker is lost."""
        searchers, path = self.web.node.server.node.searchers, "/v1/topics/t/search"
        asking = asyncio.create_task(self.web.lines(path, {"text": "v"}))
        await until(lambda: searchers.slots.running > 0)
        await self.scrape()
        await asking
        assert (await self.web.refusal("POST", path, {"text": ""}))[0] == 400
        await self.scrape()
        for pid in searchers.pids:
            os.kill(pid, signal.SIGKILL)
        while not searchers.counters.workers_lost:
            await self.web.lines(path, {"text": "v"})

    async def ask(self, query: str) -> int:
        return (await self.web.ask("POST", "/v1/sql", {"query": query}))[0]

    async def scrape(self) -> None:
        self.scrapes.append(await scrape(self.web))

    def moved(self) -> set[str]:
        """Families of which some series changed, or came."""
        return {
            family.name
            for family in FAMILIES
            if len({_told(family.name, family.type, values) for values in self.scrapes}) > 1
        }


async def fail(*_: object) -> None:
    raise PassFailed("a fault on cue")


async def leave(*_: object) -> None:
    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _told(name: str, kind: str, values: Values) -> frozenset[tuple[tuple[str, ...], float]]:
    name += {"counter": "_total", "histogram": "_count"}.get(kind, "")
    return frozenset(item for item in values.get(name, {}).items() if item[1])


async def test_every_metric_moves(serve: Callable[..., Awaitable[Web]]) -> None:
    hour = Hour(await serve(**SETTINGS))
    await hour.scrape()
    await hour.web.node.create_topic("t", pq_write_speed_bytes="1000000", pq_low_watermark_bytes="300000")
    await hour.web.node.create_topic("other", pq_producer_ids_max="1")
    await hour.web.node.create_topic("third")
    for step in (
        hour.write, hour.forget_a_producer, hour.read, hour.refuse, hour.hold, hour.trim, hour.group,
        hour.produce_in_a_transaction, hour.stop_halfway,
        hour.open_a_session, hour.drop, hour.break_the_protocol, hour.run_out_of_room, hour.lose_the_cell,
        hour.connect_too_often, hour.tables, hour.sort, hour.transact, hour.materialize, hour.clean,
        hour.query,
        hour.search,
    ):  # fmt: skip
        await step()
        await hour.scrape()
    still = {family.name for family in FAMILIES} - hour.moved() - MAY_MOVE
    assert (still - STILL, STILL - still) == (set(), set())


async def test_nothing_is_told_of_a_topic_and_a_group_that_are_gone(web: Web) -> None:
    before = await scrape(web)
    await web.node.create_topic("gone", 2)
    await web.node.produce("gone", b"v")
    await web.node.produce("gone", b"v", partition=2)
    await commit_offsets(web, "dropped", ("gone", 0, 1))
    assert {"gone", "dropped"} <= labels_of(await scrape(web))
    await web.ask("DELETE", "/v1/groups/dropped")
    await web.ask("DELETE", "/v1/topics/gone")
    assert labels_of(await scrape(web)) & {"gone", "dropped"} == set()
    assert before["topics"] == (await scrape(web))["topics"]


def labels_of(values: Values) -> set[str]:
    return {label for found in values.values() for labels in found for label in labels}
