"""Attributes of a table, and of its tablets: what is set is the table's, what acts is each tablet's own.

A tablet takes what is set when it is mounted or remounted (K.4). Other tablets keep what they took.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import ALL_TABLETS, TabletRange, find_table
from pqbroker.broker.services.tables.readiness import check_unmounted
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_state import TableRecord, TopicRecord
from pqbroker.tables.attributes import check_attributes
from pqbroker.tables.refusals import TableError


async def set_attributes(caller: TablesCaller, name: str, given: Mapping[str, Any]) -> Topic:
    """Set some attributes; they act in a tablet from its next mount or remount on. TableError INVALID_ATTRIBUTE,
    WRONG_STATE, TOO_MANY_ATTRIBUTE_SETS."""
    topic, _ = find_table(caller, AclOperation.ALTER_CONFIGS, name)
    check_attributes(given)

    def changed(record: TopicRecord) -> TopicRecord:
        table = record.table
        assert table is not None
        if "commit_ordering" in given:
            check_unmounted(topic)
        after = {**table.attributes, **given}
        _check_sets(table, after, caller.node.settings.table_attribute_sets_max)
        return replace(record, table=replace(table, attributes=after))

    return await caller.node.cell.current.topics.change(topic.record.name, changed)


async def remount(caller: TablesCaller, name: str, tablets: TabletRange = ALL_TABLETS) -> Topic:
    """Make the set attributes act now in a range of tablets, or in all of them. TableError NO_TABLE, NO_TABLET."""
    topic, _ = find_table(caller, AclOperation.ALTER, name)

    def changed(record: TopicRecord) -> TopicRecord:
        return remounted(record, tablets.of(topic))

    return await caller.node.cell.current.topics.change(topic.record.name, changed)


def remounted(record: TopicRecord, tablets: Collection[int]) -> TopicRecord:
    """Return the table with what is set acting in these tablets."""
    table = record.table
    assert table is not None
    return record.with_table(replace(table, mounted=table.mounted.taken(tablets, table.attributes)))


def _check_sets(table: TableRecord, attributes: Mapping[str, Any], sets_max: int) -> None:
    """Check that acting sets, with the attributes that are set, are no more than the limit, whatever tablets take."""
    if attributes not in table.mounted.sets and len(table.mounted.sets) >= sets_max:
        text = f"{len(table.mounted.sets)} sets of attributes act in tablets of the table, and the limit is {sets_max}"
        cure = "Remount tablets, so that several have the same, or raise pqbroker.table.attribute.sets.max."
        raise TableError("TOO_MANY_ATTRIBUTE_SETS", text, cure)
