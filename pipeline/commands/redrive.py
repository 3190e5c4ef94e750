"""`redrive`: dead letters back into their topic, after what they failed on was mended."""

from pathlib import Path

from pqbroker.pipeline.commands.parsing import Options, Parser, Work, add_broker, add_stream, directory, rate
from pqbroker.pipeline.commands.relaying import relay_work
from pqbroker.pipeline.relays.copying import Copying


def declare(one: Parser) -> None:
    """Declare the command's arguments."""
    one.add_argument("topic", metavar="TOPIC", help="name of the topic that the records failed in")
    one.add_argument("--letters", metavar="TOPIC", help="topic of the dead letters; default: TOPIC.dlq")
    one.add_argument("--state", type=directory, required=True, metavar="DIR", help="directory of the job's memory")
    add_broker(one)
    add_stream(one)
    one.add_argument("--rate", type=rate, metavar="N", help="most records a second; default: no limit")
    one.add_argument("--metrics", type=Path, metavar="FILE", help="file for metrics in Prometheus' text form")


def plan(parser: Parser, options: Options) -> Work:
    """The job."""
    return relay_work(
        Copying(
            options.letters or f"{options.topic}.dlq", options.topic, options.state, options.broker, options.broker,
            are_letters=True, once=options.once, interval_s=options.interval, batch_rows_max=options.batch_rows,
            records_per_s=options.rate, figures=options.metrics,
        )
    )  # fmt: skip
