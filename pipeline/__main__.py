"""`pqbroker-pipeline`: parses a command, checks what it needs, starts Spark and performs it.

Errors become a few lines on standard error and an exit status. PySpark is imported when all else was found.
"""

import logging
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType

from pqbroker.pipeline.commands import copy, infer, land, redrive, replay, snapshot, status
from pqbroker.pipeline.commands.parsing import PROGRAM, Answer, Parser, Work, choose_addresses
from pqbroker.pipeline.connection_security import use_security
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.landing import is_pattern
from pqbroker.pipeline.pulse import Pulse
from pqbroker.pipeline.requirements import check_java, check_pyspark, find_jars

FAILED = 1
_CONNECT_TIMEOUT_S = 5.0
_STOPPED_EARLY = "stopped by a signal while Spark was starting; nothing was read or written"
_LOG_SETTINGS = Path(__file__).absolute().with_name("log4j2.properties").as_uri()
"""A URI: Java options with a space, as in a path, would be two."""
COMMANDS: dict[str, tuple[ModuleType, str, str]] = {
    "land": (land, "copy a topic into a directory of Parquet, each row once", "events --to ./lake --once"),
    "snapshot": (snapshot, "keep the latest value of each key of a topic as a table", "users --to ./users --once"),
    "copy": (copy, "copy a topic into another topic or broker, each record once", "events others --state ./copy"),
    "replay": (replay, "write files of Parquet or JSON lines into a topic, each once", "./lake events --state ./state"),
    "redrive": (redrive, "write dead letters back into their topic, each once", "events --state ./redrive --once"),
    "infer": (infer, "print the schema of a topic's JSON values, from a sample", "events"),
    "status": (status, "print a line for each job whose directory lies here", "./lake ./copy"),
}
"""Module, help, and arguments of an example."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 done or stopped, 1 failed (the reason on standard error); wrong usage exits with 2.

    What is missing is found before Spark takes its time to start.
    """
    parser = Parser(prog=PROGRAM, description="Spark jobs on topics of a Kafka broker.")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True, parser_class=Parser)
    parsers: dict[str, Parser] = {}
    for name, (module, about, example) in COMMANDS.items():
        one = parsers[name] = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        one.example = f"{name} {example}"
        one.add_argument("-q", "--quiet", action="store_true", help="do not say what the job waits for")
        module.declare(one)
    options, unknown = parser.parse_known_args(arguments)
    chosen = parsers[options.command]
    if unknown:
        chosen.error(f"unknown: {' '.join(unknown)}")
    profile = choose_addresses(chosen, options) if "broker" in options else None
    work: Work | Answer = COMMANDS[options.command][0].plan(chosen, options)
    if isinstance(work, Answer):
        print("\n".join(work.lines))
        return 0
    try:
        use_security(getattr(options, "command_config", None))
        if profile is not None:
            _say(f"profile {profile}: {options.broker}")
        with Pulse(_say, quiet=options.quiet) as pulse:
            return _run(work, pulse, options.command)
    except JobError as error:
        _say(f"{PROGRAM}: {error}")
    except KeyboardInterrupt:
        pass
    return FAILED


def _run(work: Work, pulse: Pulse, command: str) -> int:
    pulse.wait_for(f"{command} {work.title}: looking for the broker, Java and Spark's jars")
    work.check()
    for broker in work.brokers:
        _check_broker(broker)
    if not work.needs_spark:
        pulse.wait_for(work.waits_for)
        work.perform(None, pulse.say, threading.Event())
        return 0
    check_pyspark()
    check_java()
    _look(work, pulse)
    source = "" if find_jars() else ", which downloads the jars of its Kafka source"
    stopping = threading.Event()
    _stop_on_signals(stopping, may_break=False)  # into the start: Spark's Java process would be left behind
    pulse.wait_for(f"starting Spark{source}")
    return _perform(work, pulse, stopping, command)


def _look(work: Work, pulse: Pulse) -> None:
    """Check topics and columns; JobError."""
    if work.topics:
        from pqbroker.pipeline.looking import check_schema, check_topics

        check_topics(work.brokers[0], work.topics)
        named = [topic for topic in work.topics if not is_pattern(topic)] if work.schema is not None else []
        for line in (line for topic in named for line in check_schema(work.brokers[0], topic, work.schema or "")):
            pulse.say(f"warning: {line}")
    if work.look is not None:
        work.look()


def _perform(work: Work, pulse: Pulse, stopping: threading.Event, command: str) -> int:
    from py4j.protocol import Py4JNetworkError

    from pqbroker.pipeline.session import start_session

    try:
        try:
            spark = start_session(f"pqbroker-pipeline {command}", master="local[*]", options=_SPARK)
        except JobError as error:
            if stopping.is_set():  # a signal for the whole group of processes ended Java too
                raise JobError(_STOPPED_EARLY) from error
            raise
        try:
            _stop_on_signals(stopping)  # Spark has set its own
            if not stopping.is_set():
                pulse.wait_for(work.waits_for)
                work.perform(spark, pulse.say, stopping)
            else:
                pulse.say(_STOPPED_EARLY)
        finally:
            spark.stop()
    except (Py4JNetworkError, ConnectionError) as error:
        raise JobError("Spark's Java process ended; start the job again, it continues where it was") from error
    return 0


_SPARK = {
    # Errors end the job and are printed once, in a line.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    # Spark prints no value of such a name, wherever it lists options.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|jaas|keystore[.]key",
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
        cure = "start one with `pqbroker serve`, or name another with --broker HOST:PORT or in PQBROKER_BROKER"
        raise JobError(f"no broker at {broker}: {why}; {cure}") from error


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
