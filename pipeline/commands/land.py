"""`land`: a topic into a directory of Parquet."""

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
from pqbroker.pipeline.lakes.lake import LANDED, Lake
from pqbroker.pipeline.lakes.landing import DATE, KEPT, Landing, is_pattern
from pqbroker.pipeline.lakes.value_registry import Registry
from pqbroker.pipeline.schema_text import read_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TO = "directory, rows in DIR/data/batch=N; of several topics in DIR/TOPIC/data/batch=N"


def declare(one: Parser) -> None:
    """Declare the command's arguments."""
    one.add_argument("topics", nargs="+", metavar="TOPIC", help="names of topics, or patterns with * and ? in quotes")
    one.add_argument("--to", type=directory, required=True, metavar="DIR", help=_TO)
    add_broker(one)
    add_stream(one)
    one.add_argument("--from", dest="starting", choices=("earliest", "latest"), default="earliest", help="first offset")
    add_values(one)
    add_registry(one)
    add_reports(one, "land-TOPIC")
    one.add_argument("--flatten", action="store_true", help="make columns of the schema's fields, not `value`")
    one.add_argument("--by-date", action="store_true", help="put rows into DIR/data/batch=N/date=YYYY-MM-DD")
    one.add_argument("--file-mb", type=count, metavar="MB", help="size of files to aim at; default: one a partition")


def plan(parser: Parser, options: Options) -> Work:
    """The job."""
    check_values(parser, options)
    _check_flat(parser, options)
    found = read_registry(parser, options)
    landings = [_landing(topic, options, found) for topic in options.topics]
    is_one = len(landings) == 1 and not is_pattern(options.topics[0])
    if options.registry_subject and not is_one:
        parser.error("--registry-subject is the subject of one topic: land each topic by a command of its own")

    def check() -> None:
        if is_one:
            Lake(options.to, LANDED)

    def perform(spark: "SparkSession", say: Callable[[str], None], stopping: threading.Event) -> None:
        from pqbroker.pipeline.lakes.land import land
        from pqbroker.pipeline.lakes.several import land_all

        if is_one:
            land(spark, landings[0], say, stopping)
        else:
            land_all(spark, landings, say, stopping)

    names = ", ".join(options.topics)
    title = f"{'topic' if is_one else 'topics'} {names} into {options.to}"
    waits_for = f"waiting for the first batch of {names}"

    def look() -> None:
        if found is not None:
            from pqbroker.pipeline.lakes.registry import latest_schema

            for topic in options.topics:
                if not is_pattern(topic):
                    latest_schema(found, topic)

    topics = tuple(options.topics)
    return Work(title, (options.broker,), check, perform, waits_for, topics, options.schema, look)


def _check_flat(parser: Parser, options: Options) -> None:
    """End the command where a field of the schema has the name of a column that rows have anyway."""
    if not options.flatten:
        return
    if options.schema is None:
        parser.error("--flatten makes columns of a schema's fields: give --format json and --schema too")
    taken = {*KEPT, "batch", *([DATE] if options.by_date else [])}
    if clashing := [name for name, *_ in read_columns(options.schema) if name.lower() in taken]:
        parser.error(f"--flatten: the field {clashing[0]} has the name of a column of every row; leave --flatten out")


def _landing(topic: str, options: Options, found: Registry | None) -> Landing:
    group = f"land-{topic}" if options.group is None else options.group
    return Landing(
        topic, options.to, options.broker, group, options.schema, once=options.once,
        interval_s=options.interval, starting_offsets=options.starting, batch_rows_max=options.batch_rows,
        fail_on_data_loss=not options.allow_loss, by_date=options.by_date, is_flat=options.flatten,
        figures=options.metrics, registry=found,
        file_bytes=None if options.file_mb is None else options.file_mb << 20,
    )  # fmt: skip
