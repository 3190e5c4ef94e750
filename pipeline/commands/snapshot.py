"""`snapshot`: the latest value of each key of a topic as a table."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pqbroker.pipeline.commands.parsing import (
    Options,
    Parser,
    Work,
    add_broker,
    add_registry,
    add_reports,
    add_stream,
    add_values,
    check_values,
    count,
    directory,
    read_registry,
)
from pqbroker.pipeline.lakes.lake import VERSIONS, Lake
from pqbroker.pipeline.lakes.snapshotting import Snapshotting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TO = "directory; the table is DIR/latest, its versions are DIR/versions/N"
_INTERVAL_S = 60.0
_BATCH_ROWS = 10_000_000


def declare(one: Parser) -> None:
    """Declare the command's arguments."""
    one.add_argument("topic", metavar="TOPIC", help="name of the topic")
    one.add_argument("--to", type=directory, required=True, metavar="DIR", help=_TO)
    add_broker(one)
    add_stream(one, _INTERVAL_S, _BATCH_ROWS)
    add_values(one)
    add_registry(one)
    one.add_argument("--keep", type=count, default=3, metavar="N", help="versions to keep, the latest included (3)")
    add_reports(one, "snapshot-TOPIC")


def plan(parser: Parser, options: Options) -> Work:
    """The job."""
    check_values(parser, options)
    found = read_registry(parser, options)
    group = f"snapshot-{options.topic}" if options.group is None else options.group
    snapshotting = Snapshotting(
        options.topic, options.to, options.broker, group, options.schema, once=options.once,
        interval_s=options.interval, batch_rows_max=options.batch_rows, fail_on_data_loss=not options.allow_loss,
        keep=options.keep, figures=options.metrics, registry=found,
    )  # fmt: skip

    def check() -> None:
        Lake(snapshotting.directory, VERSIONS)

    def perform(spark: "SparkSession", say: Callable[[str], None], stopping: threading.Event) -> None:
        from pqbroker.pipeline.lakes.snapshot import snapshot

        snapshot(spark, snapshotting, say, stopping)

    def look() -> None:
        if found is not None:
            from pqbroker.pipeline.lakes.registry import latest_schema

            latest_schema(found, options.topic)

    title = f"latest values of topic {options.topic} into {options.to}"
    waits_for = f"waiting for the first batch of {options.topic}"
    return Work(title, (options.broker,), check, perform, waits_for, (options.topic,), options.schema, look)
