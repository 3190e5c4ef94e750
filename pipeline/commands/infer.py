"""`infer`: the schema of a topic's JSON values, from a sample."""

import threading
from collections.abc import Callable

from pqbroker.pipeline.commands.parsing import Options, Parser, Work, add_broker, count


def declare(one: Parser) -> None:
    """Declare the command's arguments."""
    one.add_argument("topic", metavar="TOPIC", help="name of the topic")
    add_broker(one)
    one.add_argument("--sample", type=count, default=10_000, metavar="N", help="newest records to read (%(default)s)")


def plan(parser: Parser, options: Options) -> Work:
    """The job. The schema alone goes to standard output."""

    def perform(spark: None, say: Callable[[str], None], stopping: threading.Event) -> None:
        from pqbroker.pipeline.infer import infer

        print(infer(options.broker, options.topic, options.sample, say), flush=True)

    title = f"a schema from topic {options.topic}"
    waits_for = f"reading a sample of {options.topic}"
    return Work(title, (options.broker,), lambda: None, perform, waits_for, needs_spark=False)
