"""One topic in service: its record, the config in force, its tablets and partitions."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.defaults import stored_config, wrong_texts
from pqbroker.conf.table_attributes import WEIGHT_MAX, retention_ms
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.partition_settings import PartitionSettings, closed_partitions
from pqbroker.pq.log.row_facts import FACT_COLUMNS
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.tablet import PqTablet
from pqbroker.pq.serving.watchers import Watchers, notify_in_slices
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.scheme_state import TableRecord, TopicRecord

_T = TypeVar("_T")
_CONFIGS_KEPT = 64

_log = logging.getLogger(__name__)


class Moving(NamedTuple):
    """State of a table's tablet between two mount states, and the future that resolves at the end."""

    state: str
    end: asyncio.Future[None]


class Topic:
    """One topic in service; `partitions` by index."""

    __slots__ = (
        "_derived", "_node", "_settings", "config", "deciding", "feeder", "moving", "partitions", "record",
        "session_locks", "tablets",
    )  # fmt: skip

    def __init__(
        self, record: TopicRecord, config: TopicConfig, node: BrokerSettings, feeder: str = ""
    ) -> None:
        self.record = record
        self.config = config
        self._node = node
        self.feeder = feeder
        """Path as in `PartitionSettings`; a change is followed by `renew`."""
        self.moving: dict[int, Moving] = {}
        """Tablets of a table that change their mount state."""
        self.tablets: dict[TabletId, PqTablet] = {}
        self.partitions: list[PartitionServer] = []
        self.session_locks = WeakValueDictionary[str, asyncio.Lock]()
        """Locks of the sessions that insert rows now, by name: a session's batches are looked up and written one at a
        time."""
        self.deciding = asyncio.Lock()
        """Held while a batch of staged rows is decided, and while rows that nobody has decided for go."""
        self._settings = self._settings_by_set()
        self._derived: tuple[TopicRecord, TopicConfig, dict[Callable[[Topic], Any], Any]] = (record, config, {})
        """Things that upper floors made of the record and the config, by the function that made them."""

    def derived(self, make: Callable[["Topic"], _T]) -> _T:
        """Return what a function makes of the record and the config. It is called once for each that the topic has
        had; threads may ask too."""
        record, config, known = self._derived
        if record is not self.record or config is not self.config:
            known = {}
            self._derived = self.record, self.config, known
        if make not in known:
            known[make] = make(self)
        made: _T = known[make]
        return made

    @property
    def states(self) -> list[str]:
        """Return the mount state of each tablet of a table; none for another topic."""
        stored = () if self.record.table is None else self.record.table.states
        moving = self.moving
        return [moving[index].state if index in moving else state for index, state in enumerate(stored)]

    def state_of(self, index: int) -> str:
        """Return the mount state of one tablet of a table."""
        assert self.record.table is not None
        return self.moving[index].state if index in self.moving else self.record.table.states[index]

    @property
    def keeps_facts(self) -> bool:
        """Return True if the topic keeps when rows were committed, and what they weigh: a table's schema or its limit
        asks so."""
        return self._settings[0].keeps_facts

    def settings(self, tablet: int = 0) -> PartitionSettings:
        """Return the settings of the partitions in the tablet of this number, as of the last `renew`."""
        table = self.record.table
        return self._settings[0 if table is None else table.mounted.numbers[tablet]]

    def _settings_by_set(self) -> Sequence[PartitionSettings]:
        """Return the settings for each set of attributes, by its number; a topic that is no table has one."""
        table = self.record.table
        if table is None:
            return [PartitionSettings(self.config, self._node, feeder=self.feeder)]
        first_offsets = {index: row for index, row in enumerate(table.first_rows) if row}
        closed, keeps_facts = closed_partitions(self.states), _keeps_facts(table)
        return [
            PartitionSettings(
                config, self._node, closed, first_offsets, keeps_open_head=True, keeps_facts=keeps_facts,
                weight_max=attributes.get(WEIGHT_MAX), epoch_base=table.epoch_base, feeder=self.feeder,
            )
            for config, attributes in zip(self._configs_by_set(table), table.mounted.sets, strict=True)
        ]  # fmt: skip

    def _configs_by_set(self, table: TableRecord) -> Sequence[TopicConfig]:
        """The config in force for each set of attributes: rows go by the age that it gives. A config that is partly
        wrong keeps the rows of all."""
        ages = [retention_ms(attributes) for attributes in table.mounted.sets]
        if len({*ages}) == 1 or wrong_texts(self.record.config):
            return [self.config] * len(ages)
        return [replace(self.config, retention_ms=age) for age in ages]

    def use(self, config: TopicConfig, node: BrokerSettings) -> None:
        """The config and the node's settings in force, from the next write cycle on."""
        self.config, self._node = config, node
        self.renew()

    def renew(self) -> None:
        """Have the partitions follow the record, the config and the tablets on their way."""
        self._settings = settings = self._settings_by_set()
        table, tablets = self.record.table, self.tablets
        sets = (0,) * len(self.record.tablets) if table is None else table.mounted.numbers
        moved: deque[Watchers] = deque()
        for number, tablet_id in zip(sets, self.record.tablets, strict=False):
            tablet = tablets.get(tablet_id)
            if tablet is not None:
                moved += tablet.configure(settings[number])
        notify_in_slices(moved)

    def line_up(self) -> None:
        """List the partitions of all tablets by index."""
        found = {index: server for tablet in self.tablets.values() for index, server in tablet.partitions.items()}
        self.partitions = [found[index] for index in range(self.record.partitions)]

    async def hold(self) -> None:
        """Write nothing more: what comes waits until its tablet starts again, or fails when that stops."""
        await asyncio.gather(*(tablet.hold() for tablet in self.tablets.values()))

    def is_whole(self, record: TopicRecord) -> bool:
        """Return True if all is served that the topic has in the scheme."""
        return len(self.partitions) == record.partitions and len(self.tablets) == len(record.tablets)


def _keeps_facts(table: TableRecord) -> bool:
    for attributes in table.mounted.sets:
        if attributes.get(WEIGHT_MAX) is not None:
            return True
    return not {column["name"] for column in table.columns}.isdisjoint(FACT_COLUMNS)


class TopicNames:
    """The topics of a node, by name and by id, and its static tables, which Kafka's clients do not see."""

    __slots__ = ("_by_unified", "by_id", "served", "static")

    def __init__(self) -> None:
        self.served: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.static: dict[str, Topic] = {}
        self._by_unified: dict[str, tuple[str, ...]] = {}
        """Names that have '.' or '_', by the name with '_' alone."""

    def find(self, name: str) -> Topic | None:
        """Static or not."""
        return self.served.get(name) or self.static.get(name)

    def colliding(self, name: str) -> str | None:
        """Return a name that is the same but for '.' and '_'."""
        return next((other for other in self._by_unified.get(unified(name), ()) if other != name), None)

    def everything(self) -> list[Topic]:
        return [*self.served.values(), *self.static.values()]

    def put(self, topic: Topic) -> None:
        name = topic.record.name
        same = self._by_unified.get(unified(name), ())
        if name not in same and ("." in name or "_" in name):
            self._by_unified[unified(name)] = (*same, name)
        if topic.record.is_static:
            self.static[topic.record.name] = topic
        else:
            self.served[topic.record.name] = self.by_id[topic.record.topic_id] = topic

    def remove(self, record: TopicRecord) -> Topic | None:
        """`record`: the topic's as it was put."""
        self.by_id.pop(record.topic_id, None)
        others = tuple(each for each in self._by_unified.pop(unified(record.name), ()) if each != record.name)
        if others:
            self._by_unified[unified(record.name)] = others
        return self.served.pop(record.name, None) or self.static.pop(record.name, None)


def unified(name: str) -> str:
    """Return the name that metrics of Kafka's have for a topic."""
    return name.replace(".", "_")


def config_of(topic: TopicRecord, settings: BrokerSettings) -> TopicConfig:
    """Return the config in force; invalid texts of the topic are logged with their cure."""
    config, causes = _in_force(tuple(sorted(topic.config.items())), settings)
    for cause in causes:
        _log.error(
            "topic %s: %s; its default is in force, and retention deletes nothing of the topic. Set the config again "
            "or delete it (kafka-configs --alter), or run the version that accepted it",
            topic.name,
            cause,
        )
    return config


@lru_cache(maxsize=_CONFIGS_KEPT)
def _in_force(texts: tuple[tuple[str, str], ...], settings: BrokerSettings) -> tuple[TopicConfig, Collection[str]]:
    """Return the config, one object for all topics that are set to the same, and why texts are invalid: it takes half a
    millisecond, and there may be thousands."""
    return stored_config(dict(texts), settings), wrong_texts(dict(texts)).values()
