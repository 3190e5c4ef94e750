"""`copy`: a topic into another topic, or into another broker."""

from pathlib import Path

from pqbroker.pipeline.commands.parsing import Options, Parser, Work, add_broker, add_stream, broker, directory, rate
from pqbroker.pipeline.commands.relaying import relay_work
from pqbroker.pipeline.relays.copying import Copying


def declare(one: Parser) -> None:
    """Declare the command's arguments."""
    one.add_argument("topic", metavar="TOPIC", help="name of the topic")
    one.add_argument("target", metavar="TARGET", help="name of the topic to copy into; made if it is missing")
    one.add_argument("--state", type=directory, required=True, metavar="DIR", help="directory of the job's memory")
    add_broker(one)
    one.add_argument("--to-broker", type=broker, metavar="HOST:PORT", help="broker of TARGET; default: the same")
    add_stream(one)
    one.add_argument("--from", dest="starting", choices=("earliest", "latest"), default="earliest", help="first offset")
    one.add_argument("--rate", type=rate, metavar="N", help="most records a second; default: no limit")
    one.add_argument("--group", default="", help="consumer group that shows offsets and lag; default: none")
    one.add_argument("--allow-loss", action="store_true", help="continue if unread records are gone")
    one.add_argument("--metrics", type=Path, metavar="FILE", help="file for metrics in Prometheus' text form")


def plan(parser: Parser, options: Options) -> Work:
    """The job."""
    return relay_work(
        Copying(
            options.topic, options.target, options.state, options.broker, options.to_broker or options.broker,
            group=options.group, once=options.once, interval_s=options.interval, starting_offsets=options.starting,
            batch_rows_max=options.batch_rows, fail_on_data_loss=not options.allow_loss, records_per_s=options.rate,
            figures=options.metrics,
        )
    )  # fmt: skip
