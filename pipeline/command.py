"""The commands of `pqbroker-pipeline`. Errors become one line on standard error and an exit status."""

import argparse
import logging
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from py4j.protocol import Py4JNetworkError

from pqbroker.pipeline.lake import Lake, LakeError
from pqbroker.pipeline.land import land
from pqbroker.pipeline.landing import LandError, Landing
from pqbroker.pipeline.session import SparkUnavailableError, check_java, find_jars, start_session

FAILED = 1
_CONNECT_TIMEOUT_S = 5.0
_PORT_MAX = 65_535
_INTERVAL_S_MAX = 86_400
_ROWS_MAX = 2**63 - 1
_EXAMPLE = "pqbroker-pipeline land events --to ./lake --once"
_JSON_EXAMPLE = '--format json --schema "id BIGINT NOT NULL, name STRING"'


class Parser(argparse.ArgumentParser):
    """Says what was wrong and then, not the whole usage, but a line that is right."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nfor example: {_EXAMPLE}\nall options: {self.prog} --help\n")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status. What is missing is found before Spark takes its time to start."""
    parser = Parser(prog="pqbroker-pipeline", description="Spark jobs on the broker's topics.")
    landing = _landing(parser, parser.parse_args(_declare(parser, arguments)))
    try:
        Lake(landing.directory)
        _check_broker(landing.broker)
        check_java()
        find_jars()
        _land(landing)
    except (LandError, LakeError, SparkUnavailableError) as error:
        print(f"pqbroker-pipeline: {error}", file=sys.stderr)
        return FAILED
    except (Py4JNetworkError, ConnectionError):
        print("pqbroker-pipeline: Spark's Java process ended; start the job again, it goes on", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    return 0


def _declare(parser: Parser, arguments: Sequence[str] | None) -> Sequence[str] | None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    one = commands.add_parser("land", help="a topic into a directory of Parquet, each row once")
    one.add_argument("topic", metavar="TOPIC")
    one.add_argument("--to", type=_directory, required=True, metavar="DIR", help="rows go to DIR/data/batch=N")
    one.add_argument("--broker", default="127.0.0.1:9092", metavar="HOST:PORT", help="default: %(default)s")
    one.add_argument("--once", action="store_true", help="end at the topic's present end")
    one.add_argument("--interval", type=_seconds, default=10.0, metavar="S", help="a batch every S seconds (10)")
    one.add_argument("--from", dest="starting", choices=("earliest", "latest"), default="earliest", help="first start")
    one.add_argument("--format", choices=("raw", "json"), default="raw", help="what values are; default: raw bytes")
    one.add_argument("--schema", metavar="SQL", help=f"of JSON values: {_JSON_EXAMPLE}; others go to TOPIC.dlq")
    one.add_argument("--group", help="consumer group that shows offsets and lag; default: land-TOPIC")
    one.add_argument("--no-group", dest="group", action="store_const", const="", help="show them in no group")
    one.add_argument("--batch-rows", type=_count, default=1_000_000, metavar="N", help="limit of a batch (1000000)")
    one.add_argument("--allow-loss", action="store_true", help="go on where retention was faster than the job")
    one.add_argument("--metrics", type=Path, metavar="FILE", help="write figures in Prometheus' text form")
    return arguments


def _landing(parser: Parser, options: argparse.Namespace) -> Landing:
    if (options.format == "json") != (options.schema is not None):
        parser.error(f"--format json and --schema go together: {_JSON_EXAMPLE}")
    host, _, port = options.broker.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX):
        parser.error(f"--broker {options.broker!r} is not HOST:PORT, such as 127.0.0.1:9092")
    group = f"land-{options.topic}" if options.group is None else options.group
    return Landing(
        options.topic, options.to, options.broker, group, options.schema, once=options.once,
        interval_s=options.interval, starting_offsets=options.starting, batch_rows_max=options.batch_rows,
        fail_on_data_loss=not options.allow_loss, figures=options.metrics,
    )  # fmt: skip


def _land(landing: Landing) -> None:
    stopping = threading.Event()
    _stop_on_signals(stopping, may_break=False)  # into the start: Spark's Java process would be left behind
    spark = start_session("pqbroker-pipeline land", master="local[*]", options=_SPARK)
    try:
        _stop_on_signals(stopping)  # Spark has set its own
        if not stopping.is_set():
            land(spark, landing, _say, stopping)
    finally:
        spark.stop()


_SPARK = {
    # Errors end the job and are told once, in a line.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


def _stop_on_signals(stopping: threading.Event, *, may_break: bool = True) -> None:
    """The first Ctrl-C or SIGTERM lets the batch in work be; a second, if it may, stops at once: nothing is lost."""

    def stop(number: int, frame: FrameType | None) -> None:
        if stopping.is_set() and may_break:
            logging.disable()  # py4j logs the call that this breaks into, with a traceback
            raise KeyboardInterrupt
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _check_broker(broker: str) -> None:
    """A broker that is not there is known at once; Spark would take its time to start first."""
    host, _, port = broker.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:  # the latter: a name that can be none
        why = (isinstance(error, OSError) and error.strerror) or error
        cure = "start one with `pqbroker serve`, or name another with --broker HOST:PORT"
        raise LandError(f"no broker at {broker}: {why}; {cure}") from error


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _directory(text: str) -> Path:
    if "://" in text or text.startswith("file:"):
        raise argparse.ArgumentTypeError(f"{text} is a URI; rows go to a directory of this machine, such as ./lake")
    return Path(text)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        value = float(text)
        if 0 <= value <= _INTERVAL_S_MAX:
            return value
    raise argparse.ArgumentTypeError(f"{text} is not between 0 and {_INTERVAL_S_MAX} seconds")


def _count(text: str) -> int:
    with suppress(ValueError):
        value = int(text)
        if 1 <= value <= _ROWS_MAX:
            return value
    raise argparse.ArgumentTypeError(f"{text} is not a count of at least 1")
