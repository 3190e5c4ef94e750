"""`pqbroker produce`: lines become records."""

import os
import sys
import time
from json import dumps
from pathlib import Path
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.cluster import Cluster, check_led, leaderless
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.kafka.positions import choose_partitions
from pqbroker.cli.kafka.topics import find_or_create
from pqbroker.cli.options import Broker, TopicName, assignments
from pqbroker.cli.output import say
from pqbroker.cli.parsing import option
from pqbroker.cli.records.client import Acks, Compression
from pqbroker.cli.records.lines import TextForm, json_lines, text_lines
from pqbroker.cli.refusals import CommandError, WrongInput

STANDARD_INPUT = 0


File = Annotated[
    Path | None,
    option("--file", "-f", metavar="FILE", help="File to read the lines from; without it: standard input."),
]
KeySeparator = Annotated[
    str | None,
    option("--key-separator", "-k", metavar="TEXT", help="Text between the key and the value of a line."),
]
Null = Annotated[str | None, option("--null", metavar="TEXT", help="Value text that means null.")]
Header = Annotated[
    list[str] | None, option("--header", "-H", metavar="NAME=VALUE", help="Header of each record; repeatable.")
]
Partition = Annotated[
    int | None,
    option("--partition", "-p", least=0, metavar="NUMBER", help="Partition; without it: by key, or any."),
]
CompressionOption = Annotated[Compression, option("--compression", "-z", help="Compression of the batches.")]
AcksOption = Annotated[
    Acks, option("--acks", "-a", help="Replicas that must acknowledge a record: none, the leader, all.")
]
JsonLines = Annotated[
    bool,
    option("--json", "-j", help="Read lines as JSON records; report in JSON on standard error."),
]

app = Family()


@declare(app, "produce", "printf 'k1:one\\nk2:two\\n' | pqbroker produce orders --key-separator :")
def produce(
    topic: TopicName,
    file: File = None,
    key_separator: KeySeparator = None,
    null: Null = None,
    header: Header = None,
    partition: Partition = None,
    compression: CompressionOption = Compression.NONE,
    acks: AcksOption = Acks.ALL,
    broker: Broker = DEFAULT_KAFKA,
    json: JsonLines = False,
) -> None:
    """Write a record for each line of standard input or of a file.

    The topic is created if the broker creates topics for producers. A line ends with a newline, which is not part of
    the record; all other bytes are. With --json lines are objects as `pqbroker consume --json` prints them.
    """
    if key_separator == "":
        raise WrongInput("--key-separator is empty; give what stands after a key, as in --key-separator :")
    if json and (key_separator is not None or null is not None):
        raise WrongInput("--json does not go with --key-separator and --null: a JSON line has a key and a null itself")
    headers = [(name, value.encode()) for name, value in assignments("--header", header or [], "source=cli").items()]
    descriptor = STANDARD_INPUT if file is None else _open(file)
    with Cluster(broker) as cluster:
        found = find_or_create(cluster, topic)
        chosen = choose_partitions(found, [] if partition is None else [partition])
        if len(leaderless(found, chosen)) == len(chosen):
            check_led(found, chosen)
    from pqbroker.cli.records.producing import Target, write_lines

    target = Target(cluster.brokers, topic, len(found.partitions), compression, acks, partition)
    parse = json_lines([*headers]) if json else text_lines(_text_form(key_separator, null, [*headers]))
    begin = time.monotonic()
    written = write_lines(target, parse, descriptor)
    seconds = round(time.monotonic() - begin, 3)
    if not json:
        say(f"{written.records} record{'s' * (written.records != 1)} to {topic} in {seconds:.1f} s")
        return
    spans = sorted(written.spans.items())
    partitions = [{"partition": index, "first": first, "last": last} for index, (first, last) in spans]
    report = {"topic": topic, "records": written.records, "bytes": written.bytes, "seconds": seconds}
    print(dumps({**report, "partitions": partitions}, ensure_ascii=False), file=sys.stderr)


def _text_form(key_separator: str | None, null: str | None, headers: list[tuple[str, bytes | None]]) -> TextForm:
    return TextForm(
        None if key_separator is None else key_separator.encode(), None if null is None else null.encode(), headers
    )


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None
