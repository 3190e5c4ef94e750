"""`pqbroker top`: topics by their rate and groups by their lag, again every few seconds."""

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

from pqbroker.cli.command import Family, declare
from pqbroker.cli.http_address import CredentialsKept, learnt_http
from pqbroker.cli.kafka.cluster import Cluster, TopicPartition
from pqbroker.cli.kafka.figures import read_sizes, read_spans
from pqbroker.cli.kafka.groups import OffsetsUnknown, find_group, list_groups
from pqbroker.cli.kafka.link import DEFAULT_KAFKA, NoBroker
from pqbroker.cli.notices import tell
from pqbroker.cli.options import Broker, Json
from pqbroker.cli.output import has_colour, show_bytes, show_json, table_lines, write
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import CommandError
from pqbroker.cli.web import NobodyAnswers, Web

GROUPS_MAX = 50
"""Groups whose offsets are asked for: each is a request."""
CONDITIONS_SHOWN = 3
"""Conditions of the node that a look shows; `pqbroker cluster health` shows all."""
PASSES_MAX = 6
"""Passes over compacted topics that a terminal shows."""
PASS_COLUMNS = ("cleaned", "partition", "reason", "seconds", "read", "written", "read/s")
TOPIC_COLUMNS = ("topic", "partitions", "records", "size", "records/s", "bytes/s")
GROUP_COLUMNS = ("group", "state", "members", "lag", "read/s")
"""Headings for people; programs get the names of the rows' fields."""
NO_GROUPS = "no groups"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"

app = Family()


class GroupFigures(NamedTuple):
    """Figures of what a group has read; `offsets` None: nobody knows now, as while a cell is not open."""

    state: str
    members: int
    offsets: dict[TopicPartition, int] | None


class Look(NamedTuple):
    """The figures of a cluster at one moment; `at_s` is a clock's time."""

    at_s: float
    spans: dict[TopicPartition, tuple[int, int]]
    sizes: dict[TopicPartition, int]
    groups: dict[str, GroupFigures]
    groups_unknown: str = ""
    """Reason why the groups are not known; empty: they are."""


class TopicRow(NamedTuple):
    """One topic; rates are those since the look before."""

    topic: str
    partitions: int
    records: int
    size: int
    records_per_s: float
    bytes_per_s: int


class GroupRow(NamedTuple):
    """One consumer group; `lag` is of the partitions that it has read."""

    group: str
    state: str
    members: int
    lag: int | None
    read_per_s: float | None


class PassRow(NamedTuple):
    """One pass of the cleaner over a compacted topic, under way."""

    topic: str
    partition: int
    reason: str
    begun_ms: int
    bytes_read: int
    bytes_written: int
    bytes_read_per_s: int


@declare(app, "top", "pqbroker top --interval 5")
def top(
    interval: Annotated[
        float, option("--interval", "-i", metavar="SECONDS", least=0.1, most=3600, help="Time between two refreshes.")
    ] = 2.0,
    count: Annotated[
        int | None, option("--count", "-n", metavar="COUNT", least=1, help="Refreshes; without it: until Ctrl-C.")
    ] = None,
    http: Annotated[
        str | None,
        option("--http", metavar="HOST:PORT", help="HTTP address of a pqbroker: show passes of its cleaner."),
    ] = None,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Show topics by rate and groups by lag, refreshed until Ctrl-C.

    Rates are those since the last refresh. If output is no terminal, each refresh is printed below the last one.
    """
    with Cluster(broker) as cluster:
        before = look(cluster)  # a broker that does not answer is refused before the screen changes
        found = Inside(http or _learnt(cluster), is_named=http is not None)
    with _screen(shown=not json) as is_screen:
        number = 0
        try:
            while count is None or number < count:
                time.sleep(interval if number or count is None else min(interval, 1.0))
                before = _show_next((broker, found), before, is_screen=is_screen, is_json=json)
                number += 1
        except KeyboardInterrupt:
            return


def _learnt(cluster: Cluster) -> str | None:
    """Return the HTTP address that the broker names; None where it has none, or one that gets no login."""
    try:
        return learnt_http(cluster)
    except CredentialsKept as error:
        tell(f"the state of the node is not shown: {error}")
        return None


def _show_next(addresses: tuple[str, "Inside"], before: Look, *, is_screen: bool, is_json: bool) -> Look:
    """Look again and show it; while the broker is gone, say so and keep the look before."""
    broker, inside = addresses
    try:
        with Cluster(broker) as cluster:
            now = look(cluster)
        seen = inside.read(broker)
    except (NoBroker, NobodyAnswers) as error:
        if not is_screen:
            raise
        _draw([str(error), "looking again until it is back; Ctrl-C ends it"])
        return before
    topics, groups = topic_rows(before, now), group_rows(before, now)
    if is_json:
        show_json(
            {
                "topics": [row._asdict() for row in topics],
                "groups": [row._asdict() for row in groups],
                **({} if seen is None else {"passes": [row._asdict() for row in seen.passes]}),
                **({} if seen is None else {"status": seen.status, "conditions": seen.conditions}),
            }
        )
        return now
    size = shutil.get_terminal_size()
    passes = () if seen is None else seen.passes
    wrong = [] if seen is None else condition_lines(seen.conditions)
    height = size.lines - len(wrong) if is_screen else None
    no_groups = now.groups_unknown or NO_GROUPS
    lines = [*wrong, *screen(topics, groups, size.columns if is_screen else None, height, passes, no_groups)]
    if is_screen:
        _draw([f"pqbroker top - {broker} - {time.strftime('%H:%M:%S')}", *lines])
    else:
        write(("\n".join(lines) + "\n\n").encode())
    return now


def look(cluster: Cluster) -> Look:
    """Ask for all of it; CommandError."""
    topics = [each for each in cluster.topics().values() if not each.is_internal]
    spans, sizes = read_spans(cluster, topics), read_sizes(cluster)
    try:
        groups, cause = _read_groups(cluster), ""
    except NoBroker:
        raise
    except CommandError as refused:
        groups, cause = {}, str(refused)
    return Look(time.monotonic(), spans, sizes, groups, cause)


def _read_groups(cluster: Cluster) -> dict[str, GroupFigures]:
    """Ask for groups and their offsets. CommandError, as while no node coordinates any since its disk is full."""
    groups: dict[str, GroupFigures] = {}
    for name in list(list_groups(cluster))[:GROUPS_MAX]:
        try:
            found = find_group(cluster, name, must_be=False)
            groups[name] = GroupFigures(found.state, len(found.members), found.offsets)
        except OffsetsUnknown as unknown:
            groups[name] = GroupFigures(unknown.group.state, len(unknown.group.members), None)
    return groups


class Seen(NamedTuple):
    """Facts that a pqbroker gives over HTTP alone: its state, and passes over compacted topics under way."""

    status: str
    conditions: list[dict[str, Any]]
    passes: list[PassRow]


class Inside(NamedTuple):
    """The HTTP address of a pqbroker; None: there is none. `is_named`: by the user, not learnt from the broker."""

    http: str | None
    is_named: bool

    def read(self, broker: str) -> Seen | None:
        """Ask; None where nobody answers at an address that was learnt. CommandError."""
        if self.http is None:
            return None
        try:
            with Web(self.http, broker=broker) as web:
                state = web.state("/health", "status")
                running = web.get("/v1/cleaner", "running")["running"]
        except NobodyAnswers:
            if self.is_named:
                raise
            return None
        passes = [PassRow(*(one[name] for name in PassRow._fields)) for one in running]
        return Seen(state["status"], state.get("conditions", []), passes)


def condition_lines(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return two lines for each of the gravest conditions, and one with the number of the others."""
    lines = []
    for one in conditions[:CONDITIONS_SHOWN]:
        lines.append(f"{one['severity']}: {one['kind']} at {one['place']}: {one['cause']}")
        lines.append(f"  to cure it: {one['cure']}")
    more = len(conditions) - CONDITIONS_SHOWN
    return [*lines, f"{more} more: `pqbroker cluster health` shows all"] if more > 0 else lines


def topic_rows(before: Look, now: Look) -> list[TopicRow]:
    """A row for each topic, the busiest first."""
    seconds = max(now.at_s - before.at_s, 1e-9)
    rows = []
    for name in dict.fromkeys(topic for topic, _ in now.spans):
        partitions = [partition for partition in now.spans if partition[0] == name]
        records = sum(now.spans[partition][1] - now.spans[partition][0] for partition in partitions)
        grown = sum(max(0, now.spans[partition][1] - _end(before, partition, now)) for partition in partitions)
        size = sum(now.sizes.get(partition, 0) for partition in partitions)
        bigger = sum(max(0, now.sizes.get(partition, 0) - before.sizes.get(partition, 0)) for partition in partitions)
        rows.append(TopicRow(name, len(partitions), records, size, round(grown / seconds, 1), round(bigger / seconds)))
    return sorted(rows, key=lambda row: (-row.records_per_s, row.topic))


def group_rows(before: Look, now: Look) -> list[GroupRow]:
    """A row for each group, the furthest behind first, and last those of which nobody knows."""
    seconds = max(now.at_s - before.at_s, 1e-9)
    rows = []
    for name, group in now.groups.items():
        if group.offsets is None:
            rows.append(GroupRow(name, group.state, group.members, None, None))
            continue
        known = before.groups.get(name, group).offsets or {}
        reached = [(now.spans[partition], at) for partition, at in group.offsets.items() if partition in now.spans]
        lag = sum(max(0, end - at) for (_, end), at in reached)
        read = sum(max(0, at - known.get(partition, at)) for partition, at in group.offsets.items())
        rows.append(GroupRow(name, group.state, group.members, lag, round(read / seconds, 1)))
    return sorted(rows, key=lambda row: (row.lag is None, -(row.lag or 0), row.group))


def screen(
    topics: list[TopicRow], groups: list[GroupRow], width: int | None, height: int | None,
    passes: Sequence[PassRow] = (), no_groups: str = NO_GROUPS,
) -> list[str]:  # fmt: skip
    """Return both tables, cut to a terminal: half of its lines for each, more where the other needs less. Passes come
    last, if there are any."""
    shown = [(*row[:3], show_bytes(row.size), row.records_per_s, f"{show_bytes(row.bytes_per_s)}/s") for row in topics]
    coloured = width is not None and has_colour()
    tables = [
        table_lines(TOPIC_COLUMNS, shown, width, coloured=coloured) if topics else ["no topics"],
        table_lines(GROUP_COLUMNS, groups, width, coloured=coloured) if groups else [no_groups],
    ]
    last = ["", *table_lines(PASS_COLUMNS, map(_pass_row, passes), width, coloured=coloured)] if passes else []
    if height is not None:
        last = last[: PASSES_MAX + 2]
        room = max(height - 3 - len(last), 8)
        first = min(len(tables[0]), max(room // 2, room - len(tables[1])))
        tables = [tables[0][:first], tables[1][: room - first]]
    return [*tables[0], "", *tables[1], *last]


def _pass_row(one: PassRow) -> tuple[object, ...]:
    read, written = show_bytes(one.bytes_read), show_bytes(one.bytes_written)
    seconds = max(0, round(time.time() - one.begun_ms / 1000))
    return one.topic, one.partition, one.reason, seconds, read, written, f"{show_bytes(one.bytes_read_per_s)}/s"


def _end(before: Look, partition: TopicPartition, now: Look) -> int:
    """Return the earlier end of a partition; a new one has grown from its start."""
    return before.spans.get(partition, now.spans[partition][:1] * 2)[1]


@contextmanager
def _screen(*, shown: bool) -> Iterator[bool]:
    """Show the terminal's other screen until the end; yields False if the output is not a terminal."""
    is_screen = shown and sys.stdout is not None and sys.stdout.isatty()
    if not is_screen:
        yield False
        return
    write(_ENTER.encode())
    try:
        yield True
    finally:
        write(_LEAVE.encode())


def _draw(lines: list[str]) -> None:
    write((_HOME + "".join(f"{line}{_CLEAR_LINE}\r\n" for line in lines) + _CLEAR_BELOW).encode(errors="replace"))
