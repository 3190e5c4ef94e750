"""`pqbroker serve`: options, the process's signals, its one line of output. What is served is the server's business.

Imports here count: a broker is ready within a second of exec, so what an option does not need is imported late.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pqbroker.broker.allocator import keep_freed_memory
from pqbroker.broker.collector import collect_at_quiet_moments, set_aside_what_lives
from pqbroker.broker.listeners import Address, AddressError, CannotListen, Listener, parse_address, parse_listeners
from pqbroker.broker.open_files import raise_limit, tell_limit
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, set_in_vain
from pqbroker.conf.load import load_settings
from pqbroker.conf.storage import MAIN_POOL, parse_pools
from pqbroker.storage.engine import CommitRefused, EngineError, ShardLost
from pqbroker.storage.status import Thresholds

if TYPE_CHECKING:
    from pqbroker.broker.server import Server
    from pqbroker.storage.memory import MemoryEngine
    from pqbroker.storage.rocks import RocksEngine

log = logging.getLogger(__name__)

MEMORY = ":memory:"
LOG_LEVELS = ("debug", "info", "warning", "error")
_SWITCH_INTERVAL_S = 0.001
"""The loop waits so long at most for each thread that stands before it for the interpreter lock. Against Python's 5 ms
that lowered the loop's worst lag under load, 7 and 11 ms to 5 and 4, and cost nothing that could be measured."""
INTERRUPTED = 130
"""Exit status after a second Ctrl-C, as a shell has it."""


class ServeError(Exception):
    """The node cannot serve, or not any more; the text is what the user is told."""


class WrongSettings(ServeError):
    """What was typed, here, in a file or in the environment, cannot be meant."""


def add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command and its options; the last of a repeated option wins, --set adds up."""
    parser = commands.add_parser("serve", help="serve a data directory", description="Serve a data directory.")
    parser.add_argument(
        "--kafka", metavar="[NAME://]HOST:PORT", default="127.0.0.1:9092",
        help="Kafka address (%(default)s); several with commas, each with its name in advertised.listeners",
    )  # fmt: skip
    parser.add_argument("--http", metavar="HOST:PORT", default="127.0.0.1:8092", help="/health, /metrics (%(default)s)")
    parser.add_argument("--data", metavar="DIR", default="./data", help="directory (%(default)s); :memory: for none")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings, in the form of Kafka's .properties")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], dest="assignments", help="one setting; repeatable"
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="least level logged (%(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop; ServeError when that cannot be, WrongSettings when it was told wrongly."""
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    keep_freed_memory()
    raise_limit()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    if not options.data:
        raise WrongSettings(f"--data is empty; give a directory, or {MEMORY}")
    try:
        kafka, http = parse_listeners(options.kafka), parse_address(options.http)
        settings = load_settings(options.config, os.environ, options.assignments)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, kafka, http, options.data))
    except (AddressError, ConfigError) as error:
        raise WrongSettings(str(error)) from error
    except (CannotListen, EngineError) as error:
        raise ServeError(str(error)) from error
    except (CommitRefused, ShardLost) as error:
        raise ServeError(f"cannot open {options.data}: {error}") from error


async def _serve(settings: BrokerSettings, kafka: Sequence[Listener], http: Address, data: str) -> int:
    from pqbroker.broker.server import Server

    stopping = _stop_on_signals()
    if data != MEMORY:
        from pqbroker.storage.preview import preview

        await preview(Path(data), {MAIN_POOL: Path(data, "blobs"), **parse_pools(settings.pools)})
    engine = _engine(data, settings)
    server = Server(settings, engine, kafka, http, faulty=engine if settings.test_commands else None)
    await server.start()
    set_aside_what_lives()
    collecting = asyncio.create_task(collect_at_quiet_moments(lambda: server.node.metrics.bytes_in))
    if in_vain := set_in_vain(server.node.settings):
        log.warning("set without effect in this broker: %s", ", ".join(in_vain))
    tell_limit(settings)
    if settings.test_commands:
        log.warning("pqbroker.test.commands=true: HTTP clients may make the store fail; for tests only")
    if settings.durability != "fsync":
        log.warning("pqbroker.durability=%s: a power loss may take acknowledged records", settings.durability)
    kafka_addresses = ",".join(map(str, server.listeners))
    print(f"ready kafka={kafka_addresses} http={server.http_address} data={data}", flush=True)
    ends: list[asyncio.Future[Any]] = [stopping, server.failed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    collecting.cancel()
    await _stop(server)
    if server.failed.done():
        raise ServeError(str(server.failed.result()))
    return 0


async def _stop(server: "Server") -> None:
    log.info("stopping: no connection is taken any more, what is in work is finished")
    await server.stop()
    log.info("stopped")


def _stop_on_signals() -> "asyncio.Future[None]":
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


def _engine(data: str, settings: BrokerSettings) -> "MemoryEngine | RocksEngine":
    pools = parse_pools(settings.pools)
    thresholds = Thresholds(settings.disk_light_yellow_bytes, settings.disk_yellow_bytes)
    if data == MEMORY:
        from pqbroker.storage.memory import MemoryEngine

        return MemoryEngine(settings.memory_engine_bytes, pools=(MAIN_POOL, *pools), thresholds=thresholds)
    from pqbroker.storage.compaction import CompactionPace
    from pqbroker.storage.faults import Faults
    from pqbroker.storage.rocks import RocksEngine

    return RocksEngine(
        Path(data),
        durability=settings.durability,
        sync_interval_ms=settings.sync_interval_ms,
        segment_bytes=settings.segment_bytes,
        round_bytes_max=settings.round_bytes_max,
        index_blob_bytes_max=settings.index_blob_bytes_max,
        ballast_bytes=settings.ballast_bytes,
        read_threads=settings.read_threads,
        pools={MAIN_POOL: Path(data, "blobs"), **pools},
        thresholds=thresholds,
        compaction=CompactionPace(settings.compaction_bytes_per_second, settings.compaction_dead_percent),
        faults=Faults() if settings.test_commands else None,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        log.warning("uvloop is not installed; asyncio's own loop serves, more slowly")
        return None
    return uvloop.new_event_loop

