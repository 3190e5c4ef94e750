"""`replay`: files of Parquet or JSON lines into a topic."""

import threading
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pqbroker.pipeline.commands.parsing import Options, Parser, Work, add_broker, directory, rate
from pqbroker.pipeline.relays.files import find_files
from pqbroker.pipeline.relays.first_rows import first_columns
from pqbroker.pipeline.relays.journal import Journal
from pqbroker.pipeline.relays.replaying import Replaying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def declare(one: Parser) -> None:
    """Declare the command's arguments."""
    one.add_argument("source", type=Path, metavar="PATH", help="file or directory of .parquet or .jsonl; DIR of `land`")
    one.add_argument("target", metavar="TOPIC", help="name of the topic to write into, which must exist")
    one.add_argument("--state", type=directory, required=True, metavar="DIR", help="directory of the job's memory")
    add_broker(one)
    one.add_argument("--since", type=_time, metavar="TIME", help="first timestamp, such as 2026-01-31T12:00 (UTC)")
    one.add_argument("--until", type=_time, metavar="TIME", help="timestamp to stop before")
    one.add_argument("--rate", type=rate, metavar="N", help="most records a second; default: no limit")


def plan(parser: Parser, options: Options) -> Work:
    """The job."""
    replaying = Replaying(
        options.source, options.target, options.state, options.broker, options.since, options.until, options.rate
    )

    def check() -> None:
        find_files(replaying.source)
        Journal(replaying.state)

    def perform(spark: "SparkSession", say: Callable[[str], None], stopping: threading.Event) -> None:
        from pqbroker.pipeline.relays.replay import replay

        replay(spark, replaying, say, stopping)

    def look() -> None:
        from pqbroker.pipeline.looking import check_rows

        first = next(iter(find_files(replaying.source)))
        if names := first_columns(Path(first)):
            check_rows(replaying.broker, replaying.target, names, first)

    title = f"{replaying.source} into topic {replaying.target}"
    waits_for = "writing the first file"
    return Work(title, (replaying.broker,), check, perform, waits_for, (replaying.target,), look=look)


def _time(text: str) -> int:
    """Milliseconds of a time in UTC, or with its own offset."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text} is not a time, such as 2026-01-31 or 2026-01-31T12:00:05") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
