"""Topics of change feeds: made with the table or when one is named, checked, and kept for the table.

    named (create, set) -> reserved: no other table, no producer -> the topic exists and fits -> stored
    acts at a mount or remount, once the topic exists and fits, and with the rights of who named it
    barred at a start of the node, where those rights are gone: writes of the table are refused until a remount

A topic fits a table that has a tablet for each of its partitions, in a PQ tablet of its own in that tablet's cell.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pqbroker.broker.ground.access import (
    AclKind,
    AclOperation,
    AclResource,
    DirectCaller,
    Principal,
    check_access,
)
from pqbroker.broker.services.sorted_tables.feed_circles import CIRCLE_CURE, told_circle, way_of_changes
from pqbroker.broker.services.tables.callers import TablesCaller, TablesNode
from pqbroker.broker.services.topics.finding import check_creation
from pqbroker.broker.services.topics.topics import check_new_topic, create_topic
from pqbroker.conf.sorted_attributes import CHANGES_ATTRIBUTE
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE, BundleRefused
from pqbroker.storage.tablets.scheme_feed_creators import feed_creator, keep_feed_creator
from pqbroker.storage.tablets.scheme_objects import SORTED_TABLE
from pqbroker.storage.tablets.scheme_tables import SortedTableRecord
from pqbroker.storage.tablets.scheme_topics import TopicExists
from pqbroker.tables.paths import ROOT, table_path, topic_name
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.change_feed import BARRED_CURE
from pqbroker.tables.serving.tables import feeds_of

COLUMNS: Final = frozenset({"before", "after", "transaction", "timestamp"})
"""Fields of a change: columns that an ordered table may have that gets changes."""
_FIELD = f"attributes.{CHANGES_ATTRIBUTE}"
_log = logging.getLogger(__name__)
_WRONG_NAMES = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST})


def with_feed_name(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return attributes with the name of the topic where the path of one is given. TableError INVALID_ATTRIBUTE."""
    named = given.get(CHANGES_ATTRIBUTE)
    if not isinstance(named, str) or not named.startswith(ROOT):
        return given
    try:
        return {**given, CHANGES_ATTRIBUTE: topic_name(named)}
    except TableError as wrong:
        raise _invalid(f"{_FIELD}: {wrong.message}", wrong.cure) from None


@contextmanager
def reserved_feed(caller: TablesCaller, attributes: Mapping[str, Any], table: str) -> Iterator[str | None]:
    """Keep the topic that attributes name for a table while they are being stored; give its name, None where they name
    none. TableError INVALID_ATTRIBUTE."""
    topic = attributes.get(CHANGES_ATTRIBUTE)
    if topic is None:
        yield None
        return
    if topic == table:
        raise _invalid(f"{_FIELD} is {topic!r}, the table itself", "Name a topic, or an ordered table.")
    with caller.node.cell.current.sorted_tables.reserving_feed(topic, table_path(table)):
        yield topic


async def ready_feed(caller: TablesCaller, record: SortedTableRecord, name: str) -> None:
    """Have the topic of a table's change feed exist, and see that it fits. KafkaError TOPIC_AUTHORIZATION_FAILED;
    TableError INVALID_ATTRIBUTE; TooManyPartitions, CommitRefused, ShardLost."""
    opened = caller.node.cell.current
    way = way_of_changes(opened, name, table_path(record.name))
    if way:
        raise _invalid(f"{_FIELD} is {name!r}: {told_circle(way)}", CIRCLE_CURE)
    topic = opened.topics.get(name, or_static=True)
    if topic is not None:
        check_access(caller, AclOperation.ALTER, AclResource(AclKind.TOPIC, name))
        check_fit(topic, record)
        return
    if opened.scheme.kind_of(name) == SORTED_TABLE:
        raise _invalid(f"{_FIELD} is {name!r}, a sorted table", "Name a topic, or an ordered table.")
    check_creation(caller, name)
    count = len(record.tablets)
    config = {"pq.partitions.per.tablet": "1"}
    if record.bundle != DEFAULT_BUNDLE:
        config["pq.bundle"] = record.bundle
    try:
        check_new_topic(caller.node, name, count, config)
    except KafkaError as wrong:
        if wrong.code not in _WRONG_NAMES:
            raise
        raise _invalid(f"{_FIELD} is {name!r}: {wrong.message}", "Give another name.") from None
    cells = [record.cell_of(index) for index in range(count)]
    try:
        await create_topic(caller.node, name, count, config, cells=cells)
    except TopicExists:  # another request was faster
        made = opened.topics.get(name, or_static=True)
        if made is None:
            raise
        check_fit(made, record)


async def ready_for_mount(caller: TablesCaller, record: SortedTableRecord) -> None:
    """Have the topic that the set attributes name exist, and see that it fits, before they act; partitions that a crash
    has left behind follow their tablets. Raises as `ready_feed`; TableError CANNOT_MOVE."""
    name = record.attributes.get(CHANGES_ATTRIBUTE)
    if name is None:
        return
    creator = _creator(caller, record, name)
    try:
        check_access(creator, AclOperation.READ, AclResource(AclKind.TOPIC, record.name))
        topic = caller.node.cell.current.topics.get(name, or_static=True)
        if topic is not None:
            check_partitions(topic, len(record.tablets))
            await _gather(caller, topic, record)
        await ready_feed(creator, record, name)
        caller.node.cell.current.sorted_tables.share.barred_feeds.pop(name, None)
    except KafkaError as refusal:
        if creator is caller or refusal.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        whose = f"the change feed {name!r} has the rights of who named it"
        text = f"{whose}: {refusal.message}; name it again to give it yours"
        raise KafkaError(refusal.code, text) from None


def bar_feeds(node: TablesNode) -> None:
    """Find the change feeds whose creators have not the rights any more, at the start of a node or of its cells."""
    opened = node.cell.current
    for table in list(opened.sorted_tables.tables.values()):
        record = table.record
        for name in sorted(feeds_of(record)):
            kind, _, user = feed_creator(opened.scheme, record.table_id, name).partition(":")
            if not user:
                continue
            creator = DirectCaller(node, Principal(kind, user))
            try:
                check_access(creator, AclOperation.READ, AclResource(AclKind.TOPIC, record.name))
                check_access(creator, AclOperation.ALTER, AclResource(AclKind.TOPIC, name))
            except KafkaError as refusal:
                opened.sorted_tables.share.barred_feeds[name] = f"it has the rights of who named it: {refusal.message}"
                _log.error(
                    "%s takes no writes, since its change feed %r has the rights of who named it: %s. %s",
                    table_path(record.name), name, refusal.message, BARRED_CURE,
                )  # fmt: skip


async def keep_creator(caller: TablesCaller, record: SortedTableRecord, name: str) -> None:
    """Have a table's change feed have the rights of the caller from now on, where access is checked."""
    creator = "" if caller.node.access is None else str(caller.principal)
    await keep_feed_creator(caller.node.cell.current.scheme, record.table_id, name, creator)


def _creator(caller: TablesCaller, record: SortedTableRecord, name: str) -> TablesCaller:
    """Return who named the change feed, whose rights it has; the caller where that is unknown."""
    creator = feed_creator(caller.node.cell.current.scheme, record.table_id, name)
    kind, _, user = creator.partition(":")
    return DirectCaller(caller.node, Principal(kind, user)) if user and creator != str(caller.principal) else caller


async def _gather(caller: TablesCaller, topic: Topic, record: SortedTableRecord) -> None:
    """Have each partition live in its tablet's cell: moves of both are two commits."""
    opened = caller.node.cell.current
    for index, tablet_id in enumerate(topic.record.tablets):
        cell = record.cell_of(index)
        if topic.record.cell_of(index) == cell:
            continue
        try:
            await opened.others.move_tablet(opened.topics.owner_of(topic), tablet_id, cell)
        except BundleRefused as refusal:
            raise TableError("CANNOT_MOVE", str(refusal), "GET /v1/cells shows which cells are open.") from None


def check_fit(topic: Topic, record: SortedTableRecord) -> None:
    """TableError INVALID_ATTRIBUTE for a topic that does not fit a table."""
    name, count = topic.record.name, len(record.tablets)
    check_partitions(topic, count)
    for index in range(count):
        own, other = record.cell_of(index), topic.record.cell_of(index)
        if own != other:
            text = f"{_FIELD} is {name!r}, whose partition {index} is in cell {other}; tablet {index} is in cell {own}"
            raise _invalid(text, "Move one of them: `pqbroker table mount TABLE --cell CELL`. Or name a new topic.")


def check_partitions(topic: Topic, count: int) -> None:
    """TableError INVALID_ATTRIBUTE for a topic that does not fit any table with COUNT tablets."""
    name = topic.record.name
    cure = "Name a topic that does not exist: it is made as it has to be. Or make this one so."
    if topic.record.is_static:
        raise _invalid(f"{_FIELD} is {name!r}, a static table", "Name a topic, or an ordered table.")
    if topic.record.partitions != count:
        text = f"{_FIELD} is {name!r}, which has {topic.record.partitions} partitions; the table has {count} tablets"
        raise _invalid(text, cure)
    if topic.record.partitions_per_tablet != 1 and count > 1:
        text = f"{_FIELD} is {name!r}, whose partitions share tablets: pq.partitions.per.tablet is not 1"
        raise _invalid(text, cure)
    columns = {column["name"] for column in topic.record.table.columns} if topic.record.table is not None else set()
    others = sorted(column for column in columns - COLUMNS if not column.startswith("$"))
    if others:
        text = f"{_FIELD} is {name!r}, an ordered table with the column {others[0]!r}"
        raise _invalid(text, f"Its columns may be {', '.join(sorted(COLUMNS))}.")


def check_no_feed(record: SortedTableRecord) -> None:
    """Refuse to reshard a table with a change feed, whose partitions are the tablets': TableError HAS_CHANGE_FEED."""
    feeds = sorted(feeds_of(record))
    if feeds:
        text = f"{table_path(record.name)} has the change feed {feeds[0]!r}, with a partition for each tablet"
        cure = (
            f"Set `{CHANGES_ATTRIBUTE}` to null, `pqbroker table remount`, reshard, then name a new topic and remount"
            " again."
        )
        raise TableError("HAS_CHANGE_FEED", text, cure)


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_ATTRIBUTE", message, cure)
