"""`pqbroker serve`: options, the process's signals, its one line of output. What is served is the server's business.

Imports here count: a broker is ready within a second of exec, so what an option does not need is imported late.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pqbroker.broker.ground.listeners import AddressError, CannotListen
from pqbroker.broker.ground.open_files import raise_limit, tell_limit
from pqbroker.broker.node.allocator import keep_freed_memory
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.broker.node.locations import (
    DATA,
    DATA_DIR,
    HTTP,
    KAFKA,
    LISTEN_HTTP,
    LISTEN_KAFKA,
    Locations,
    Options,
    choose_locations,
)
from pqbroker.broker.node.log_lines import begin_log, set_log_format
from pqbroker.broker.node.python_gc import CycleCollector, Load, objects_of
from pqbroker.broker.node.start_line import describe_start
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, parse, set_in_vain
from pqbroker.conf.load import read_texts
from pqbroker.security.errors import SecurityError
from pqbroker.security.passwords import PASSWORD, PASSWORD_FILE, password_for
from pqbroker.storage.engine import CommitRefused, EngineError, ShardLost
from pqbroker.storage.engine_kinds import MEMORY, kind_of
from pqbroker.storage.tablets.scheme_objects import STORED_USERS

if TYPE_CHECKING:
    from pqbroker.broker.node.node_place import AskParent
    from pqbroker.broker.node.orders import Orders
    from pqbroker.broker.node.parts import Node
    from pqbroker.broker.node.server import Server

log = logging.getLogger(__name__)

_ABOUT = (
    "Run a broker on a data directory.\n\n"
    "It prints a line that begins with `ready` when it serves, and logs to standard error. SIGTERM and Ctrl-C stop it: "
    "requests are finished, and everything is written."
)
LOG_LEVELS = ("debug", "info", "warning", "error")
_SWITCH_INTERVAL_S = 0.001
"""Seconds that the loop waits at most for each thread that stands before it for the interpreter lock. Against Python's
5 ms that lowered the loop's worst lag under load, 7 and 11 ms to 5 and 4, and cost nothing that could be measured."""
_OWN_DIRECTORY = 0o700
_OTHERS = 0o077
"""Rights that nobody but the node's user gets on new files."""
LEFT_START_S = 5.0
"""Seconds that a start which is left has to end."""
ONE_NODE = "1"
INTERRUPTED = 130
"""Exit status after a second Ctrl-C, as a shell has it."""


class ServeError(Exception):
    """The node cannot serve, or not any more; the text is for the user."""

    status = 1
    """Exit status of the process."""


class WrongSettings(ServeError):
    """Settings that cannot be meant: typed on the command line, in a file or in the environment."""

    status = 2


def add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command and its options; the last of a repeated option wins, --set adds up."""
    about = _ABOUT.partition("\n")[0]
    parser = commands.add_parser("serve", help=about, description=_ABOUT, allow_abbrev=False)
    parser.add_argument(
        "--kafka", metavar="[NAME://]HOST:PORT",
        help="Kafka address; several with commas, each with its name in advertised.listeners. Without it: "
        f"{LISTEN_KAFKA}, the setting listeners, or {KAFKA}.",
    )  # fmt: skip
    parser.add_argument(
        "--http", metavar="[https://]HOST:PORT",
        help="HTTP address, for /health, /metrics, the console and all that is not Kafka's; https:// serves under TLS. "
        f"Without it: {LISTEN_HTTP}, or {HTTP}.",
    )  # fmt: skip
    parser.add_argument(
        "--data", metavar="DIR",
        help=f"Directory of the data; {MEMORY} serves from memory. Without it: {DATA_DIR}, the setting log.dirs, or "
        f"{DATA}.",
    )  # fmt: skip
    parser.add_argument("--config", metavar="FILE", type=Path, help="Settings, in the form of Kafka's .properties.")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], dest="assignments",
        help="Setting that wins over the environment and the file; repeatable.",
    )  # fmt: skip
    parser.add_argument(
        "--user", metavar="NAME",
        help=f"Super user to make unless it exists; its password is in {PASSWORD} or {PASSWORD_FILE}, or typed.",
    )  # fmt: skip
    parser.add_argument(
        "--nodes", metavar="COUNT", default=ONE_NODE,
        help="Processes that serve the data together, one for each core; auto: as many as there are cores. Default: 1.",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", choices=LOG_LEVELS, default="info", metavar="|".join(LOG_LEVELS),
        help="Least level that is logged. Default: info.",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal to stop; ServeError when the node cannot, WrongSettings when an option is invalid."""
    begin_log(options.log_level)
    prepare_process()
    raise_limit()
    if options.data == "":
        raise WrongSettings(f"--data is empty; give a directory, or {MEMORY}")
    with as_serve_errors(options.data):
        texts = read_texts(options.config, os.environ, options.assignments)
        locations = choose_locations(Options(options.kafka, options.http, options.data), os.environ, texts)
        settings = parse(BrokerSettings, texts)
        set_log_format(settings.log_format)
        start = ServeStart(settings, locations, _first_user(options.user))
        if options.nodes != ONE_NODE:
            return _serve_several(options, start, texts)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(start))


def prepare_process() -> None:
    """Set what holds for the whole process, before anything else is done in it."""
    os.umask(_OTHERS)  # a directory may hold users and tokens: its files and its backups are for its owner alone
    keep_freed_memory()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


@contextmanager
def as_serve_errors(data: str | None) -> Iterator[None]:
    """Raise what ends a start, or a node, as ServeError or WrongSettings."""
    try:
        yield
    except (AddressError, ConfigError, SecurityError) as error:
        raise WrongSettings(str(error)) from error
    except (CannotListen, EngineError) as error:
        raise ServeError(str(error)) from error
    except (CommitRefused, ShardLost) as error:
        raise ServeError(f"cannot open {data}: {error}") from error


def _serve_several(options: argparse.Namespace, start: "ServeStart", texts: Mapping[str, str]) -> int:
    """Be the parent of several nodes; raises as `run`."""
    from pqbroker.broker.node.parent import count_nodes, serve_several

    nodes = count_nodes(options.nodes, start.settings, start.locations.data)
    if nodes == 1:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(start))
    return serve_several(start, nodes, texts, options.log_level)


def _first_user(name: str | None) -> FirstUser | None:
    """Return the super user that the start makes. SecurityError."""
    return None if name is None else FirstUser(name, password_for(name, os.environ, is_new=True))


@dataclass(frozen=True, slots=True)
class ServeStart:
    """Everything that a start goes by. `orders`: those of a parent process, which `ask_parent` asks; None: the broker
    has one node."""

    settings: BrokerSettings
    locations: Locations
    first_user: FirstUser | None = None
    orders: "Orders | None" = None
    ask_parent: "AskParent | None" = None


async def _serve(start: ServeStart) -> int:
    data = start.locations.data

    def ready(server: "Server") -> None:
        kafka_addresses = ",".join(map(str, server.listeners))
        print(f"ready kafka={kafka_addresses} http={server.http_url} data={data}", flush=True)

    return await serve_until(start, stop_on_signals(), ready)


async def serve_until(
    start: ServeStart, stopping: "asyncio.Future[None]", ready: Callable[["Server"], None]
) -> int:
    """Serve until `stopping` is resolved; `ready` is called once. Raises ServeError when the node fails, and what its
    start raises."""
    settings, began_at = start.settings, time.monotonic()
    server = await _make_server(start)
    if not await _is_started(server, start, stopping):
        return 0
    if server.node.cell.current.scheme.rows(STORED_USERS):
        _close_directory(start.locations.data)
    log.info("%s", describe_start(server.node, start.locations.data, time.monotonic() - began_at))
    cycles, node = CycleCollector(), server.node
    load = Load(
        lambda: node.metrics.bytes_in, lambda: node.answers.made, lambda: _served_objects(node),
        lambda: node.cell.current.sorted_tables.share.stores_blocks,
    )  # fmt: skip
    cycles.begin(load.served())
    collecting = asyncio.create_task(cycles.collect_at_quiet_moments(load, node.metrics.observe_deep_pass))
    _warn_of(settings, server)
    ready(server)
    ends: list[asyncio.Future[Any]] = [stopping, server.failed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    collecting.cancel()
    await _stop(server)
    if server.failed.done():
        raise ServeError(str(server.failed.result()))
    return 0


async def _is_started(server: "Server", start: ServeStart, stopping: "asyncio.Future[None]") -> bool:
    """Start the server; return False if a node is to stop before. One that waits for the first node, which may be gone
    for good, would wait for ever, and keep the directory locked. Raises what the start raises."""
    if start.orders is None or start.orders.http is not None:  # it is the first one
        await server.start(start.first_user)
        return True
    starting = asyncio.ensure_future(server.start(start.first_user))
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        return True
    log.info("stopped before it served")
    starting.cancel()
    await asyncio.wait([starting], timeout=LEFT_START_S)
    return False


async def _make_server(start: ServeStart) -> "Server":
    """Return the server of the data, which was looked at before. Raises EngineError."""
    from pqbroker.broker.node.server import Server
    from pqbroker.storage.tablets.start_check import check_start

    settings, locations = start.settings, start.locations
    if start.orders is not None:
        from pqbroker.broker.node.node_server import make_node_server

        assert start.ask_parent is not None, "a node that takes orders was started by a parent"
        return await make_node_server(start.orders, settings, start.ask_parent)
    kind = kind_of(locations.data)
    await kind.preview(locations.data, settings, check_start)
    return Server(settings, kind.engine(locations.data, settings), locations.kafka, locations.http)


def _warn_of(settings: BrokerSettings, server: "Server") -> None:
    """Log what is set and may surprise."""
    if in_vain := set_in_vain(server.node.settings):
        log.warning("set without effect in this broker: %s", ", ".join(in_vain))
    tell_limit(settings)
    if settings.test_door:
        log.warning("pqbroker.test.door=true: HTTP clients may make requests and the store fail; for tests only")
    if settings.registry_config_files:
        from pqbroker.broker.services.topics.named_registries import wrong_files

        for wrong in wrong_files(settings):
            log.warning("%s", wrong)
    if settings.durability != "fsync":
        log.warning("pqbroker.durability=%s: a power loss may take acknowledged records", settings.durability)


def _close_directory(data: str) -> None:
    """Let nobody but the node's user into the directory; one from before this version may be open to others."""
    if data != MEMORY:
        Path(data).chmod(_OWN_DIRECTORY)


def _served_objects(node: "Node") -> int:
    opened = node.cell.current
    topics, stores = opened.topics, opened.sorted_tables.share
    return objects_of(topics.topic_count, topics.partition_count) + stores.stores_lists


async def _stop(server: "Server") -> None:
    log.info("stopping: no new connections; requests that have begun are finished")
    await server.stop()
    log.info("stopped")


def stop_on_signals() -> "asyncio.Future[None]":
    """A future that the first SIGTERM or Ctrl-C resolves; a second Ctrl-C ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopping.done():
            stopping.set_result(None)

    def interrupt() -> None:
        if stopping.done():
            os._exit(INTERRUPTED)
        stop()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    return stopping


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Makes the loop that a broker runs on; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        log.warning("uvloop is not installed; asyncio's own loop serves, more slowly")
        return None
    return uvloop.new_event_loop

