"""The scheme tablet: names to topics, ids and tablets that are never given out twice, the cluster's id, producer ids.

    topic:   unknown --create--> known --delete--> tombstone --forget--> unknown

One commit each; a tombstone keeps the tablets' ids until the cell has dropped them. Tables will share the names.
"""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pqbroker.storage.basetablet import BaseTablet
from pqbroker.storage.cells.cell import Cell
from pqbroker.storage.tables import Key, Row, Table, Transaction
from pqbroker.storage.tablet import TabletStorage, TabletType
from pqbroker.storage.unreadable import StoredUnreadable

SCHEME_TABLET_ID = 1
FIRST_TABLET_ID = 1 << 16
"""Ids below are for the broker's own tablets."""
PARTITIONS_MAX = 20_000
PARTITIONS_PER_TABLET_MAX = 1_000
TABLETS_PER_TOPIC_MAX = 10_000
PRODUCER_IDS_PER_BLOCK = 1_000

_FORMAT = 1
_TOPIC = "topic"
_SETTINGS = "settings"


class SchemeError(Exception):
    """The scheme cannot be changed so; nothing of it is."""


class TopicExists(SchemeError):
    """The name is taken, by a topic or by a table."""


class TopicUnknown(SchemeError):
    """There is no topic of that name."""


class PartitionsNotGrown(SchemeError):
    """The number of partitions may only grow (spec A.15)."""


class PartitionsRefused(SchemeError):
    """More partitions, or tablets for them, than a topic may have; or fewer than one (spec A.15)."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A PersQueue group. `config` holds what was set, as texts; the 16 bytes of `topic_id` are Kafka's topic id."""

    name: str
    topic_id: bytes
    partitions: int
    partitions_per_tablet: int
    tablets: tuple[int, ...]
    config: Mapping[str, str]
    created_ms: int

    def tablet_of(self, partition: int) -> int:
        """Id of the tablet that serves the partition: for ever the same one (spec A.15)."""
        assert 0 <= partition < self.partitions
        return self.tablets[partition // self.partitions_per_tablet]


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deleted topic whose tablets may still be there."""

    name: str
    topic_id: bytes
    tablets: tuple[int, ...]


class Scheme:
    """Everything the cluster knows by name. Reading is from memory; changes are durable when their call returns.

    Changes raise SchemeError, CommitRefused or ShardLost. `clock`: milliseconds since 1970.
    """

    def __init__(self, storage: TabletStorage, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._topics_by_id: dict[bytes, Topic] = {}
        self._tombstones: dict[bytes, Tombstone] = {}
        self._facts: dict[str, Any] = {}
        self._settings: dict[str, Mapping[str, str]] = {}
        self._tablet = BaseTablet(storage, changed=self._row_changed)

    @classmethod
    async def open(cls, cell: Cell, clock: Callable[[], int]) -> "Scheme":
        """The scheme of the cell, created when it has none, and started. Raises as `start`."""
        await cell.create_tablets([(SCHEME_TABLET_ID, TabletType.SCHEME, "scheme")])
        scheme = cls(cell.storage(SCHEME_TABLET_ID), clock)
        has_topics = any(record.type is TabletType.PERSQUEUE for record in cell.tablets().values())
        await scheme.start(may_be_new=not has_topics)
        return scheme

    async def start(self, *, may_be_new: bool = True) -> None:
        """Raises StoredUnreadable, before anything is changed; CommitRefused, ShardLost.

        `may_be_new=False`: there are tablets of topics, which an empty scheme would have removed.
        """
        await self._tablet.start()
        if self._tablet.tables:
            self._check()
        elif not may_be_new:
            raise StoredUnreadable("the scheme", "its log is empty, though there are tablets of topics")
        else:
            await self._tablet.transact(_lay_out)
        if _SETTINGS not in self._tablet.tables:  # laid out before nodes could be set
            await self._tablet.transact(_lay_out_settings)

    def _check(self) -> None:
        """What was replayed is a scheme of this version. Raises StoredUnreadable."""
        written = self._facts.get("format")
        lacking = {"cluster_id", "next_tablet_id", "next_producer_id"} - self._facts.keys()
        if not isinstance(written, int) or not 1 <= written <= _FORMAT:
            cause = f"it is of format {written!r}, and this version reads up to {_FORMAT}: a newer version wrote it"
            raise StoredUnreadable("the scheme", cause)
        if lacking:
            raise StoredUnreadable("the scheme", f"it has no {', '.join(sorted(lacking))}")

    @property
    def tables(self) -> Mapping[str, Table]:
        """What lies beneath, for administration; only to be looked at."""
        return self._tablet.tables

    @property
    def cluster_id(self) -> str:
        """22 characters, as Kafka's."""
        found: str = self._facts["cluster_id"]
        return found

    @property
    def topics(self) -> Mapping[str, Topic]:
        return MappingProxyType(self._topics)

    @property
    def tombstones(self) -> Mapping[bytes, Tombstone]:
        """Deleted topics by topic id, until they are forgotten."""
        return MappingProxyType(self._tombstones)

    @property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """What nodes were set to while they ran, as texts, by the node's name; "" is every node."""
        return MappingProxyType(self._settings)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._topics_by_id.get(topic_id)

    async def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], partitions_per_tablet: int
    ) -> Topic:
        """Raises TopicExists, PartitionsRefused."""

        def plan(transaction: Transaction) -> Topic:
            if transaction.tables["names"].get((name,)) is not None:
                raise TopicExists(f"there is a topic or table {name!r} already")
            count = tablet_count(partitions, partitions_per_tablet)
            tablets = self._new_tablets(transaction, count)
            topic = Topic(
                name, new_uuid(), partitions, partitions_per_tablet, tablets, dict(config), self._clock()
            )
            transaction.put("names", (name,), {"kind": _TOPIC, "id": topic.topic_id})
            _put_topic(transaction, topic)
            return topic

        return await self._tablet.transact(plan)

    async def grow_topic(self, name: str, count: int) -> Topic:
        """Raise the number of partitions to `count`. Raises TopicUnknown, PartitionsNotGrown, PartitionsRefused."""

        def plan(transaction: Transaction) -> Topic:
            topic = self._known(name)
            if count <= topic.partitions:
                raise PartitionsNotGrown(f"topic {name!r} has {topic.partitions} partitions; {count} are no more")
            added = tablet_count(count, topic.partitions_per_tablet) - len(topic.tablets)
            tablets = topic.tablets + self._new_tablets(transaction, added)
            grown = replace(topic, partitions=count, tablets=tablets)
            _put_topic(transaction, grown)
            return grown

        return await self._tablet.transact(plan)

    async def ungrow_topic(self, topic: Topic) -> None:
        """Take back a growth that came to nothing: `topic` is as it was before. Tablet ids given out stay so."""
        await self._tablet.transact(lambda transaction: _put_topic(transaction, topic))

    async def configure_topic(self, name: str, config: Mapping[str, str]) -> Topic:
        """Replace all that is set for the topic. Raises TopicUnknown."""

        def plan(transaction: Transaction) -> Topic:
            topic = replace(self._known(name), config=dict(config))
            _put_topic(transaction, topic)
            return topic

        return await self._tablet.transact(plan)

    async def configure_node(self, node: str, settings: Mapping[str, str]) -> None:
        """Replace all that is set for a node; "" is every node."""

        await self._tablet.transact(lambda transaction: transaction.put(_SETTINGS, (node,), {"texts": dict(settings)}))

    async def delete_topic(self, name: str) -> Topic:
        """Free the name, leave a tombstone. Raises TopicUnknown."""

        def plan(transaction: Transaction) -> Topic:
            topic = self._known(name)
            transaction.delete("names", (name,))
            transaction.delete("topics", (topic.topic_id,))
            transaction.put("tombstones", (topic.topic_id,), {"name": name, "tablets": list(topic.tablets)})
            return topic

        return await self._tablet.transact(plan)

    async def forget_tombstone(self, topic_id: bytes) -> None:
        """The deleted topic's tablets are gone."""
        await self._tablet.transact(lambda transaction: transaction.delete("tombstones", (topic_id,)))

    async def producer_id_block(self) -> range:
        """Producer ids that nobody else ever gets."""

        def plan(transaction: Transaction) -> range:
            start: int = self._facts["next_producer_id"]
            block = range(start, start + PRODUCER_IDS_PER_BLOCK)
            _put_fact(transaction, "next_producer_id", block.stop)
            return block

        return await self._tablet.transact(plan)

    async def stop(self) -> None:
        await self._tablet.stop()

    def _known(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicUnknown(f"there is no topic {name!r}")
        return topic

    def _new_tablets(self, transaction: Transaction, count: int) -> tuple[int, ...]:
        start: int = self._facts["next_tablet_id"]
        if count:
            _put_fact(transaction, "next_tablet_id", start + count)
        return tuple(range(start, start + count))

    def _row_changed(self, table: str, key: Key, row: Row | None) -> None:
        """Follow the tables with what is asked for by name or id."""
        item: Any = key[0]
        if table == "facts":
            if row is None:
                raise ValueError(f"fact {item!r} is deleted, which nobody does")
            self._facts[item] = row["value"]
        elif table == _SETTINGS:
            if row is None:
                raise ValueError(f"the settings of {item!r} are deleted, which nobody does")
            texts: Any = row["texts"]
            self._settings[item] = texts
        elif table == "topics":
            if row is None:
                del self._topics[self._topics_by_id.pop(item).name]
            else:
                topic = _read_topic(item, row)
                self._topics[topic.name] = self._topics_by_id[item] = topic
        elif table == "tombstones":
            self._tombstones.pop(item, None)
            if row is not None:
                fields: Any = row
                self._tombstones[item] = Tombstone(fields["name"], item, tuple(fields["tablets"]))


def tablet_count(partitions: int, partitions_per_tablet: int) -> int:
    """Tablets that the partitions need. PartitionsRefused outside the limits of spec A.15."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise PartitionsRefused(f"{partitions} partitions; a topic has 1 to {PARTITIONS_MAX}")
    if not 1 <= partitions_per_tablet <= PARTITIONS_PER_TABLET_MAX:
        raise PartitionsRefused(f"{partitions_per_tablet} partitions per tablet; 1 to {PARTITIONS_PER_TABLET_MAX}")
    count = -(-partitions // partitions_per_tablet)
    if count > TABLETS_PER_TOPIC_MAX:
        raise PartitionsRefused(f"{count} tablets; a topic has at most {TABLETS_PER_TOPIC_MAX}: put more into each")
    return count


def new_uuid() -> bytes:
    """16 random bytes whose text form does not begin with a dash, which command lines take for an option."""
    while True:
        found = secrets.token_bytes(16)
        if found[0] >> 2 != 62:
            return found


def uuid_text(uuid: bytes) -> str:
    """The 22 characters that Kafka writes for 16 bytes."""
    return urlsafe_b64encode(uuid)[:22].decode()


def _lay_out(transaction: Transaction) -> None:
    transaction.create_table("facts", [("name", "str")], ["value"])
    transaction.create_table("names", [("name", "str")], ["kind", "id"])
    transaction.create_table(
        "topics",
        [("id", "bytes")],
        ["name", "partitions", "partitions_per_tablet", "tablets", "config", "created_ms"],
    )
    transaction.create_table("tombstones", [("id", "bytes")], ["name", "tablets"])
    _lay_out_settings(transaction)
    _put_fact(transaction, "format", _FORMAT)
    _put_fact(transaction, "cluster_id", uuid_text(new_uuid()))
    _put_fact(transaction, "next_tablet_id", FIRST_TABLET_ID)
    _put_fact(transaction, "next_producer_id", 0)


def _lay_out_settings(transaction: Transaction) -> None:
    transaction.create_table(_SETTINGS, [("node", "str")], ["texts"])


def _put_fact(transaction: Transaction, name: str, value: int | str) -> None:
    transaction.put("facts", (name,), {"value": value})


def _put_topic(transaction: Transaction, topic: Topic) -> None:
    row: dict[str, Any] = {
        "name": topic.name,
        "partitions": topic.partitions,
        "partitions_per_tablet": topic.partitions_per_tablet,
        "tablets": topic.tablets,
        "config": dict(topic.config),
        "created_ms": topic.created_ms,
    }
    transaction.put("topics", (topic.topic_id,), row)


def _read_topic(topic_id: bytes, row: Row) -> Topic:
    fields: dict[str, Any] = dict(row)
    fields["tablets"] = tuple(fields["tablets"])
    return Topic(topic_id=topic_id, **fields)
