"""`pqbroker consume`: records become lines."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.cluster import Cluster, Topic, check_led, leaderless, tell_leaderless
from pqbroker.cli.kafka.isolation import ReadIsolation
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.kafka.positions import Position, choose_partitions, parse_position, resolve
from pqbroker.cli.kafka.topics import matching
from pqbroker.cli.notices import tell
from pqbroker.cli.options import INT32_MAX, Broker, IsolationOption, Json, complete_groups, complete_topics
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.records.decoding import RegistryConfig, RegistryOption, decoder_of
from pqbroker.cli.records.filters import TermsDocument, filters_of, terms_of
from pqbroker.cli.records.formats import parse_form
from pqbroker.cli.records.selection import PrintOptions
from pqbroker.cli.refusals import WrongInput

if TYPE_CHECKING:
    from pqbroker.cli.records.consuming import Reading

GROUP_STARTS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}
DEFAULT_START = "beginning"

Topics = Annotated[
    list[str],
    Argument(
        metavar="TOPIC",
        complete=complete_topics,
        help="Names of topics, or patterns with * and ? in quotes.",
    ),
]
Start = Annotated[
    str,
    option("--from", "-s", metavar="POSITION", help="Start: beginning, end, an offset, a time, an age (15m)."),
]
Until = Annotated[
    str | None,
    option("--until", "-u", metavar="POSITION", help="First position not to read; without it: the end."),
]
Last = Annotated[
    int | None,
    option("--last", "-n", metavar="COUNT", least=1, most=INT32_MAX, help="Newest records to print, by time."),
]
Partitions = Annotated[
    list[int] | None,
    option("--partition", "-p", least=0, metavar="NUMBER", help="Partition to read; repeatable; without it: all."),
]
Limit = Annotated[int | None, option("--limit", "-c", metavar="COUNT", least=1, help="Records to print at most.")]
Follow = Annotated[bool, option("--follow", "-f", help="Wait for new records, until Ctrl-C.")]
GroupOption = Annotated[
    str | None,
    option(
        "--group",
        "-g",
        metavar="GROUP",
        complete=complete_groups,
        help="Consumer group to read as a member of, from its offsets; commits what it read.",
    ),
]
FormatOption = Annotated[
    str,
    option(
        "--format",
        "-F",
        metavar="FORMAT",
        help="Form of a line: value, key, key-value, json, or a template such as '{time} {key} {value}'.",
    ),
]
Grep = Annotated[
    str | None,
    option(
        "--grep", "-e", metavar="TEXT",
        help="Text that key, value or a header must contain; /REGEX/: a regular expression of RE2, /REGEX/i: of any "
        "case.",
    ),
]
Where = Annotated[
    list[str] | None,
    option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Condition on a value that is JSON, as in 'customer.id = 7'; also != < <= > >= contains; repeatable.",
    ),
]
KeyTerm = Annotated[str | None, option("--key", "-k", metavar="KEY", help="Key that the record must have.")]
HeaderTerms = Annotated[
    list[str] | None,
    option("--header", metavar="NAME=VALUE", help="Header that the record must have; NAME: any value; repeatable."),
]

app = Family()


@declare(app, "consume", "pqbroker consume orders --from 15m --follow --json")
def consume(
    topic: Topics,
    start: Start = DEFAULT_START,
    until: Until = None,
    last: Last = None,
    partition: Partitions = None,
    limit: Limit = None,
    follow: Follow = False,
    group: GroupOption = None,
    form: FormatOption = "value",
    pattern: Grep = None,
    condition: Where = None,
    key: KeyTerm = None,
    header: HeaderTerms = None,
    isolation: IsolationOption = ReadIsolation.COMMITTED,
    registry: RegistryOption = None,
    registry_config: RegistryConfig = None,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Print the records of topics, up to their current end.

    A template has the fields topic, partition, offset, timestamp (milliseconds), time, key, value and headers in
    braces, and \\n and \\t. A field may have a width: {key:<20} is aligned left, {key:>20} right, {key:^20} in the
    middle. Filters (--grep, --where, --key, --header) choose among the records that the other options name. A pqbroker
    that serves HTTP searches itself, unless --follow, --last or --registry is given. If the topic names a schema
    registry, it searches decoded keys and values and returns them as JSON. With --registry this command decodes.
    """
    given = {"--until": until, "--last": last, "--partition": partition, "--follow": follow or None, "--limit": limit}
    _check_together(given, start, group)
    terms = terms_of(pattern, condition, key, header)
    decoder = decoder_of(registry, registry_config)
    wanted = PrintOptions(parse_form("json" if json else form), filters_of(terms), limit, last, decoder)
    stop = None if until is None else parse_position("--until", until)
    span = _ReadRange(parse_position("--from", start), stop, last, isolation)
    from pqbroker.cli.records.consuming import Reading, read_group, read_partitions

    with Cluster(broker) as cluster:
        topics = matching(cluster, topic)
        if group is not None:
            topics = _wholly_led(topics, topic)
        chosen = [(each, choose_partitions(each, partition or []), each.name in topic) for each in topics]
        starts, ends = _bounds_of_all(cluster, chosen, span, is_awaited=follow)
        reading = Reading(cluster.brokers, [each.name for each in topics], ends, follow, wanted, isolation)
        reads_itself = follow or group is not None or last is not None or decoder is not None
        address = None if reads_itself or not terms else _search_address(cluster)
    if group is not None:
        read_group(reading, group, GROUP_STARTS[start])
    elif address is None or not _has_searched(address, terms, reading, starts):
        read_partitions(reading, starts)


def _await_served(cluster: Cluster, chosen: Sequence[tuple[Topic, list[int], bool]]) -> None:
    """Return when all partitions that somebody leads are served: nobody knows their offsets before."""
    from pqbroker.cli.kafka.unserved import await_served

    led = {(topic.name, index) for topic, indexes, _ in chosen for index in indexes}
    led -= {(topic.name, index) for topic, indexes, _ in chosen for index in leaderless(topic, indexes)}
    await_served(cluster, led)


def _wholly_led(topics: Sequence[Topic], named: Sequence[str]) -> list[Topic]:
    """Return the topics all of whose partitions somebody leads: a group divides all of them."""
    led = {each.name: _led(each, [*each.partitions], is_named=each.name in named) for each in topics}
    return [each for each in topics if len(led[each.name]) == len(each.partitions)]


def _search_address(cluster: Cluster) -> str | None:
    from pqbroker.cli.records.searching import search_address

    return search_address(cluster)


def _has_searched(
    address: str, terms: TermsDocument, reading: "Reading", starts: Mapping[tuple[str, int], int]
) -> bool:
    """Have the broker search, and print what it finds; False where it does not."""
    from pqbroker.cli.records.searching import BrokerSearch, TopicSpans

    spans = [
        TopicSpans(
            name,
            {index: start for (topic, index), start in starts.items() if topic == name},
            {index: end for (topic, index), end in reading.ends.items() if topic == name},
        )
        for name in reading.topics
    ]
    return BrokerSearch(address, terms, reading.isolation, reading.wanted).run(spans)


def _led(topic: Topic, partitions: list[int], *, is_named: bool) -> list[int]:
    """The partitions that somebody leads; CommandError where another one's topic is named, not found by a pattern."""
    missing = leaderless(topic, partitions)
    if is_named:
        check_led(topic, partitions)
    elif missing:
        tell(f"leaving out what cannot be read: {tell_leaderless(topic, missing)}")
    return [index for index in partitions if index not in missing]


class _ReadRange(NamedTuple):
    """The part of each partition that is read: from a position, or the `last` records, up to a position or its end."""

    first: Position
    until: Position | None
    last: int | None
    isolation: ReadIsolation


def _check_together(given: Mapping[str, object], start: str, group: str | None) -> None:
    """WrongInput for options that contradict each other."""
    if group is not None and start not in GROUP_STARTS:
        raise WrongInput(
            f"--from {start} does not go with --group, which continues at its offsets. Give beginning or end for a "
            "group without offsets, or move them with `pqbroker group reset`"
        )
    used = {name for name, value in given.items() if value is not None}
    used |= {"--from"} if start != DEFAULT_START else set()
    used |= {"--group"} if group is not None else set()
    for one, other, why in _APART:
        if {one, other} <= used:
            raise WrongInput(f"{one} and {other} do not go together: {why}")


def _bounds_of_all(
    cluster: Cluster, chosen: Sequence[tuple[Topic, list[int], bool]], span: _ReadRange, *, is_awaited: bool
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """Return by topic and partition the first offset to read, and the first one not to read. `chosen`: topics, their
    partitions, and whether a topic is named, not found by a pattern. `is_awaited`: what nobody serves is waited for."""
    if is_awaited:
        _await_served(cluster, chosen)
    starts: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int], int] = {}
    for topic, partitions, is_named in chosen:
        for index, (begin, end) in _bounds(cluster, topic, _led(topic, partitions, is_named=is_named), span).items():
            starts[topic.name, index], ends[topic.name, index] = begin, end
    return starts, ends


def _bounds(cluster: Cluster, topic: Topic, partitions: list[int], span: _ReadRange) -> dict[int, tuple[int, int]]:
    """Return by partition the first offset to read and the first one not to read."""
    spans = cluster.spans(topic, partitions, span.isolation)
    ends = {index: each.end for index, each in spans.items()}
    if span.until is not None and span.until.offset is not None:
        ends = {index: min(end, span.until.offset) for index, end in ends.items()}
    elif span.until is not None:
        ends = resolve(cluster, topic, partitions, span.until, span.isolation)
    if span.last is not None:
        return {index: (max(each.start, ends[index] - span.last), ends[index]) for index, each in spans.items()}
    starts = resolve(cluster, topic, partitions, span.first, span.isolation)
    return {index: (starts[index], ends[index]) for index in spans}


_APART = (
    ("--group", "--partition", "a group divides the partitions itself"),
    ("--group", "--until", "a group would commit what it did not print"),
    ("--group", "--last", "a group continues at its offsets"),
    ("--last", "--from", "the last records begin where they begin"),
    ("--last", "--limit", "both count the records to print"),
    ("--until", "--follow", "one ends the reading, the other does not let it end"),
)
