"""One state through every door: a disk fills, stalls or cannot be opened, cells are lost or damaged, workers die, work
in the background is late, clients are refused, the clock jumps.

Each time the node has logged a change, the first answer of each door must give the same conditions with the same cause
and cure; so again when it is over. The node is a thread of this process, on a small file system, which spares
processes for the commands.
"""

import asyncio
import base64
import hashlib
import logging
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.health import recent, symptoms
from pqbroker.broker.services.health.conditions import ConditionKind
from pqbroker.conf.broker import BrokerSettings
from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.faults import Faults
from pqbroker.storage.pool_status import DEFAULT_THRESHOLDS
from tests.cli.shell import Shell
from tests.faults import full_disk
from tests.faults.doors import Doors, State, firing, without_numbers

PATIENCE_S = 60.0
SHOWN_S = 10.0
"""Seconds for which events are shown here, instead of a minute and more."""
RESERVE_BYTES = 32 << 20
REFUSED = "127.0.0.2"
"""Address that may have no connection."""
MARKED = [b"".join(hashlib.sha256(b"%d,%d" % (one, part)).digest() for part in range(200)) for one in range(12)]
"""Values small enough for the index, which fill blocks that no start reads; nothing makes them shorter."""
UNAVAILABLE = 503
_BEGUN = re.compile(r"(?P<kind>[a-z-]+) at (?P<place>[^:]+): ")
_OVER = re.compile(r"(?P<kind>[a-z-]+) at (?P<place>[^:]+) is over after [0-9.]+ s")
Trouble = Callable[["Site"], AbstractContextManager[None]]


class Log(logging.Handler):
    """Lines that the node logs about its health."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Site:
    """A node on a disk of its own; filled, with the topic `near` in the system cell and `far` in cell 1."""

    def __init__(self, disk: Path, server: Server, engine: RocksEngine, log: Log) -> None:
        self.disk, self.server, self.engine, self.log = disk, server, engine, log
        self.kafka, self.http = str(server.kafka_address), str(server.http_address)
        self.calls = HttpCalls(lambda: self.http)

    def fill(self) -> None:
        """Make the topics and the cell."""
        self.calls.ask("POST", "/v1/bundles", {"name": "b"})
        self.calls.ask("POST", "/v1/cells", {"bundle": "b"})
        self.calls.ask("POST", "/v1/topics", {"name": "near", "partitions": 1})
        self.calls.ask("POST", "/v1/topics", {"name": "far", "partitions": 1, "config": {"pq.bundle": "b"}})
        self.calls.ask("POST", "/v1/topics", {"name": "kept", "config": {"cleanup.policy": "compact"}, "partitions": 1})
        self.calls.ask("POST", "/v1/topics", {"name": "brief", "config": {"retention.ms": "30000"}, "partitions": 1})

    @property
    def faults(self) -> Faults:
        assert self.engine.faults is not None
        return self.engine.faults

    def write(self, topic: str, value: bytes = b"v") -> None:
        """Write a record, which the broker may refuse while the trouble lasts."""
        record = {"key": "k", "value": {"base64": base64.b64encode(value).decode()}, "partition": 0}
        with taken_or_unavailable():
            self.calls.ask("POST", f"/v1/topics/{topic}/records", {"records": [record]})

    def read(self, topic: str) -> None:
        """Read the first records."""
        self.calls.ask("GET", f"/v1/topics/{topic}/records?partition=0&offset=0&limit={len(MARKED)}")

    def clean(self) -> None:
        """Have the compacted topic cleaned."""
        self.write("kept")
        self.calls.ask("POST", "/v1/topics/kept/clean", {})

    def wait(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until something holds; seconds that it took."""
        began_s = time.monotonic()
        while not condition():
            assert time.monotonic() - began_s < PATIENCE_S, f"still not: {what}; {self.log.lines[-5:]}"
            time.sleep(0.01)
        return time.monotonic() - began_s

    def begun(self) -> dict[tuple[str, str], str]:
        """The line of the log about each condition that has begun and is not over, by kind and place."""
        found: dict[tuple[str, str], str] = {}
        for line in list(self.log.lines):
            if over := _OVER.fullmatch(line):
                found.pop((over["kind"], over["place"]), None)
            elif begun := _BEGUN.match(line):
                found[begun["kind"], begun["place"]] = line
        return found

    def wait_for(self, *conditions: tuple[str, str]) -> None:
        """Wait until the node has logged the conditions."""
        self.wait(lambda: self.begun().keys() >= set(conditions), f"{conditions} in the log")


@contextmanager
def taken_or_unavailable() -> Iterator[None]:
    try:
        yield
    except BrokerRefusedError as refused:
        if refused.status != UNAVAILABLE:
            raise


@contextmanager
def served(data: Path) -> Iterator[tuple[Server, RocksEngine]]:
    """A node on a thread of this process."""
    ready: Future[tuple[Server, RocksEngine, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        settings = BrokerSettings(
            test_door=True, console_writes=True, retention_check_interval_ms=500,
            connections_per_ip_overrides=f"{REFUSED}:0",
        )
        engine = RocksEngine(
            data, faults=Faults(), thresholds=DEFAULT_THRESHOLDS, read_only_look_ms=50,
            index_blob_bytes_max=settings.index_blob_bytes_max,
        )  # fmt: skip
        address, stop = Address("127.0.0.1", 0), asyncio.Event()
        server = Server(settings, engine, address, address)
        try:
            await server.start()
        except BaseException as error:
            ready.set_exception(error)
            raise
        ready.set_result((server, engine, asyncio.get_running_loop(), stop))
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="node")
    thread.start()
    server, engine, loop, stop = ready.result()
    try:
        yield server, engine
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    disk = tmp_path_factory.mktemp("disk")
    with pytest.MonkeyPatch.context() as patched:
        for name in ("LOST_WORKERS_SHOWN_S", "CLOCK_JUMP_SHOWN_S"):
            patched.setattr(recent, name, SHOWN_S)
        patched.setattr(recent, "LOST_WORKERS_MIN", 1)
        try:
            with full_disk.small_disk(disk), at_site(disk) as found:
                found.fill()
                yield found
        except full_disk.CannotMount as cause:
            pytest.skip(str(cause))


@contextmanager
def at_site(disk: Path) -> Iterator[Site]:
    """A node in `disk/data`, and the log of its health."""
    log, health = Log(), logging.getLogger("pqbroker.broker.services.health")
    health.setLevel(logging.INFO)
    health.addHandler(log)
    try:
        with served(disk / "data") as (server, engine):
            yield Site(disk, server, engine, log)
    finally:
        health.removeHandler(log)
        health.setLevel(logging.NOTSET)


@contextmanager
def nearly_full_disk(site: Site) -> Iterator[None]:
    """Between a tenth and a fifth of the disk is left beyond the reserve."""
    left = RESERVE_BYTES + full_disk.DISK_BYTES * 3 // 20
    other = site.disk / "nearly"
    other.write_bytes(bytes(full_disk.free_bytes(site.disk) - left))
    try:
        yield
    finally:
        other.unlink()


@contextmanager
def whole_disk(site: Site) -> Iterator[None]:
    full_disk.take_the_rest(site.disk)
    try:
        yield
    finally:
        full_disk.give_back(site.disk)


@contextmanager
def start_on_a_full_disk(site: Site) -> Iterator[None]:
    """The store fails, and another program holds every byte of its disk when it is opened again."""
    with ExitStack() as stack:
        with lost_system_cell(site):
            site.wait_for((CELL_LOST, "cell 0"))
            for ballast in site.disk.rglob("ballast"):
                ballast.unlink()
            stack.callback(full_disk.give_back, site.disk)
            stack.enter_context(full_disk.held(site.disk))
        yield


@contextmanager
def stalled_disk(site: Site) -> Iterator[None]:
    site.faults.hold()
    with ThreadPoolExecutor(1) as another:
        written = another.submit(site.write, "near")
        try:
            yield
            assert not written.done()
        finally:
            site.faults.release()
            written.result()


@contextmanager
def lost_cell(site: Site) -> Iterator[None]:
    """The store of cell 1 fails, and its blobs are not there when it is opened again, as on an unmounted disk."""
    faults = site.engine.sibling("1", must_exist=True).faults
    assert faults is not None
    with taken_away(site.disk / "data" / "cells" / "1" / "blobs"):
        faults.lose_next()
        site.write("far")
        yield


@contextmanager
def cell_away(site: Site) -> Iterator[None]:
    """The directory of cell 1 has another name for a while. Put back, it is whole: nothing stays damaged."""
    with taken_away(site.disk / "data" / "cells" / "1"):
        site.write("far")
        yield


@contextmanager
def failing_cleaner(site: Site) -> Iterator[None]:
    """Processes of the cleaner die in their first moments, until a pass has failed."""
    place, looks = ("compaction-behind", "the cleaner of compacted topics"), count()

    def has_failed() -> bool:
        if next(looks) % 100 == 0:  # a process that no look met has done its work: there is to be more
            site.clean()
        for pid in site.server.node.cleaner.worker_pids:
            with suppress(ProcessLookupError):  # it died of the last look
                os.kill(pid, signal.SIGKILL)
        return place in site.begun()

    site.wait(has_failed, "a pass has failed")
    yield
    site.clean()


@contextmanager
def full_store(site: Site) -> Iterator[None]:
    """A sorted table takes no more rows: its store is full and may not rotate. It ends with the table."""
    schema = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "note", "type": "utf8"}]
    attributes = {"enable_store_rotation": False, "max_dynamic_store_row_count": 1}
    site.calls.ask("POST", "/v1/tables", {"path": "//full", "schema": schema, "attributes": attributes})
    try:
        site.calls.ask("POST", "/v1/tables/full/rows", {"rows": [{"id": 1, "note": "a"}]})
        yield
    finally:
        site.calls.ask("DELETE", "/v1/tables/full")


@contextmanager
def late_retention(site: Site) -> Iterator[None]:
    """A record expires while its disk is stalled, so that no look of retention ends."""
    site.write("brief")
    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(1) as another, stalled_disk(site):
        another.submit(site.calls.ask, "POST", "/v1/test/clock", {"advance_ms": 40_000})  # which waits for retention
        patched.setattr(symptoms, "RETENTION_SLACK_S", 1.0)
        yield


@contextmanager
def refused_clients(site: Site) -> Iterator[None]:
    """An address that may have no connection asks for one again and again."""
    over = threading.Event()
    host, _, port = site.kafka.rpartition(":")

    def connect() -> None:
        while not over.wait(0.2):
            with socket.create_connection((host, int(port)), PATIENCE_S, (REFUSED, 0)) as refused, suppress(OSError):
                refused.recv(1)

    with ThreadPoolExecutor(1) as another:
        connecting = another.submit(connect)
        try:
            yield
        finally:
            over.set()
            connecting.result()


@contextmanager
def lost_system_cell(site: Site) -> Iterator[None]:
    with taken_away(site.disk / "data" / "blobs"):
        site.faults.lose_next()
        site.write("near")
        yield


@contextmanager
def taken_away(directory: Path) -> Iterator[None]:
    away = directory.rename(directory.with_name("away"))
    try:
        yield
    finally:
        away.rename(directory)


@contextmanager
def several_at_once(site: Site) -> Iterator[None]:
    """A worker dies, the clock jumps, and a disk stalls."""
    for _ in range(2):
        site.calls.ask("POST", "/v1/sql", {"query": "SELECT 1"})
        for pid in site.server.node.workers.pids:
            os.kill(pid, signal.SIGKILL)
    site.calls.ask("POST", "/v1/test/clock", {"advance_ms": 120_000})
    with stalled_disk(site):
        yield


DEGRADED, OK, LOST = "degraded", "ok", "cell lost"
CELL_LOST = "cell-lost"
CASES: Mapping[str, tuple[Trouble, str, tuple[tuple[str, str], ...]]] = {
    "nearly full disk": (nearly_full_disk, OK, (("disk-nearly-full", "cell 0, pool main"),)),
    "full disk": (whole_disk, DEGRADED, (("disk-full", "cell 0, pool main"), ("disk-full", "cell 1, pool main"))),
    "start on a full disk": (start_on_a_full_disk, DEGRADED, (("reading-only", "cell 0"), ("reading-only", "cell 1"))),
    "lost cell": (lost_cell, DEGRADED, ((CELL_LOST, "cell 1"),)),
    "cell away": (cell_away, DEGRADED, ((CELL_LOST, "cell 1"),)),
    "failing cleaner": (failing_cleaner, DEGRADED, (("compaction-behind", "the cleaner of compacted topics"),)),
    "full store": (full_store, DEGRADED, (("compaction-behind", "sorted tables"),)),
    "late retention": (late_retention, DEGRADED, (("retention-behind", "retention"), ("sync-slow", "cell 0"))),
    "refused clients": (refused_clients, DEGRADED, (("refusing", "Kafka connections"),)),
    "lost system cell": (lost_system_cell, LOST, ((CELL_LOST, "cell 0"),)),
    "several at once": (
        several_at_once, DEGRADED,
        (
            ("sync-slow", "cell 0"), ("workers-failing", "worker processes of SQL queries"),
            ("clock-jumped", "the clock of the machine"),
        ),
    ),
}  # fmt: skip
"""Cases by name. Each has a function that makes the trouble, the status, and the conditions by kind and place."""


@pytest.mark.parametrize("case", CASES)
def test_each_door_gives_the_same_state_and_again_when_it_is_over(
    site: Site, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    trouble, status, conditions = CASES[case]
    doors = doors_of(site, capsys)
    with trouble(site):
        site.wait_for(*conditions)
        seen = asked_once(doors, site)
        assert seen.states["/health"][0] == status
        assert seen.statuses == ((503, 503) if status == LOST else (200, 200))
        expect_same(seen, site.begun())
    site.wait(lambda: not site.begun(), "everything is over")
    seen = asked_once(doors, site)
    assert seen.states["/health"] == (OK, ())
    expect_same(seen, {})


def doors_of(site: Site, capsys: pytest.CaptureFixture[str]) -> Doors:
    shell = Shell(site.kafka, capsys)

    def run(*arguments: str) -> tuple[int, str]:
        said = shell.raw(*arguments)
        assert said.output, said.errors
        return said.status, said.output

    return Doors(site.kafka, site.http, run)


def test_damage_is_the_same_at_each_door_until_a_start_on_a_whole_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with at_site(tmp_path) as site:
        site.calls.ask("POST", "/v1/topics", {"name": "near", "partitions": 1})
        for value in MARKED:
            site.write("near", value)
    middle = MARKED[len(MARKED) // 2][1000:1030]
    (table,) = (path for path in tmp_path.rglob("*.sst") if middle in path.read_bytes())
    whole = table.read_bytes()
    table.write_bytes(whole.replace(middle, middle[::-1]))
    with at_site(tmp_path) as site:
        with pytest.raises(BrokerRefusedError, match="CORRUPT_MESSAGE"):
            site.read("near")
        site.wait_for(("damaged", "cell 0"))
        seen = asked_once(doors_of(site, capsys), site)
        assert (seen.states["/health"][0], seen.statuses) == (DEGRADED, (200, 200))
        expect_same(seen, site.begun())
    (table,) = tmp_path.rglob(table.name)
    table.write_bytes(whole)
    with at_site(tmp_path) as site:
        site.read("near")
        seen = asked_once(doors_of(site, capsys), site)
        assert seen.states["/health"] == (OK, ())
        expect_same(seen, {})


def test_a_damaged_blob_is_told_at_each_door_until_it_is_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = bytes(range(256)) * 1024
    with at_site(tmp_path) as site:
        site.calls.ask("POST", "/v1/topics", {"name": "near", "partitions": 1})
        site.write("near", value)
    (segment,) = (path for path in tmp_path.rglob("blobs/**/*") if path.is_file() and value[:4096] in path.read_bytes())
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(value[:4096], bytes(4096)))
    with at_site(tmp_path) as site:
        with pytest.raises(BrokerRefusedError, match="CORRUPT_MESSAGE"):
            site.read("near")
        site.write("near", b"behind it")
        site.wait_for(("damaged", "cell 0, blobs"))
        seen = asked_once(doors_of(site, capsys), site)
        assert (seen.states["/health"][0], seen.statuses) == (DEGRADED, (200, 200))
        expect_same(seen, site.begun())
        shell = Shell(site.kafka, capsys)
        assert shell("topic", "trim", "near", "--before", "1", "--yes").status == 0
        site.wait(lambda: not site.begun(), "the blob is deleted")
        seen = asked_once(doors_of(site, capsys), site)
        assert seen.states["/health"] == (OK, ())
        expect_same(seen, {})


class Seen(NamedTuple):
    """The answers of all doors."""

    states: dict[str, State]
    texts: dict[str, str]
    counts: Counter[str]
    statuses: tuple[int, int]


def asked_once(doors: Doors, site: Site) -> Seen:
    """Ask each door once; all again if the log says that something has begun or ended meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        before = len(site.log.lines)
        seen = Seen(doors.states(), doors.texts(), doors.counts(), doors.statuses())
        if len(site.log.lines) == before:
            return seen
        assert time.monotonic() < deadline, f"the state does not settle: {site.log.lines[-5:]}"


def expect_same(seen: Seen, logged: Mapping[tuple[str, str], str]) -> None:
    """Check that each door has the conditions that the log has, with the same cause and cure."""
    assert len(set(seen.states.values())) == 1, seen.states
    conditions = seen.states["/health"][1]
    assert {(kind, place) for _, kind, place, *_ in conditions} == logged.keys()
    for severity, kind, place, affects, cause, cure in conditions:
        line = f"{kind} at {place}: {cause}; affects {affects}; {cure}"
        assert without_numbers(logged[kind, place]) == without_numbers(line)
        for text in seen.texts.values():
            assert f"{severity}: {kind} at {place}" in text
            assert cause in without_numbers(text)
            assert cure in text
    assert seen.counts == Counter(kind for _, kind, *_ in conditions)


def test_an_alert_fires_for_every_kind_of_condition() -> None:
    assert [kind for kind, alerts in firing([kind.value for kind in ConditionKind]).items() if len(alerts) != 1] == []
