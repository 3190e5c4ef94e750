"""The scheme tablet: everything the cluster knows by name, and numbers that are never given out twice.

Topics are changed in scheme_topics.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.base_tablet import BaseTablet
from pqbroker.storage.tablets.hosting import TabletHost, TabletPage, TabletSample
from pqbroker.storage.tablets.numbered_changes import ChangeLog
from pqbroker.storage.tablets.row_sets import Key, Row, RowChanges
from pqbroker.storage.tablets.scheme_layout import (
    lay_out,
    lay_out_settings,
    put_fact,
    put_named_settings,
)
from pqbroker.storage.tablets.scheme_objects import (
    NAMES,
    OwnedTablet,
    Unowned,
    has_object_tablets,
    owned_tablets,
    unowned_tablets,
)
from pqbroker.storage.tablets.scheme_state import (
    SETTINGS,
    TOMBSTONES,
    SchemeState,
    Tombstone,
    TopicRecord,
)
from pqbroker.storage.tablets.tablet import TabletRecord, TabletStorage, TabletType
from pqbroker.storage.tablets.unowned_reclaim import KnownScheme, reclaim_unowned
from pqbroker.storage.unreadable import StoredUnreadable

SCHEME_TABLET_ID = TabletId(1)
PRODUCER_IDS_PER_BLOCK = 1_000
AskTimestamps = Callable[[int], Awaitable[tuple[int, int]]]
"""Asks another node for commit timestamps greater than one that was seen: the first value, and the one behind the last.
CommitRefused."""
TIMESTAMPS_RESERVED = "timestamps_reserved"
"""A fact from the first commit on that has a timestamp."""
FEATURE, FEATURES_EPOCH = "feature ", "features_epoch"
"""Facts from the first change of a feature's level on: a level each, behind its name; and the number of changes."""

RowFollower = Callable[[Key, Row | None], None]
"""Called with the key of a row that was set, and with the row; or with None where it was removed."""

T = TypeVar("T")


class SchemeError(Exception):
    """The scheme cannot be changed so; nothing of it is."""


class Scheme:
    """Everything the cluster knows by name. Reading is from memory; changes are durable when their call returns.

    Changes raise SchemeError, CommitRefused or ShardLost; while the tablet is restarted they wait. `may_be_new=False`:
    there are tablets of objects, which an empty scheme would have removed.
    """

    def __init__(self, ask_timestamps: AskTimestamps | None = None, *, may_be_new: bool = True) -> None:
        self.ask_timestamps = ask_timestamps
        """The way of a copy to the timestamps of the node that has the scheme."""
        self._may_be_new = may_be_new
        self._state = SchemeState()
        self._held: asyncio.Future[None] | None = None
        self._followers: dict[str, RowFollower] = {}
        self._is_copy = False
        self.changes = ChangeLog()
        """Numbered changes, for mirrors on other nodes."""

    _tablet: BaseTablet

    @classmethod
    async def open(cls, host: TabletHost, ask_timestamps: AskTimestamps | None = None) -> "Scheme":
        """The scheme of the host's cell, created when it has none, and started. Raises as `start`."""
        await host.cell.create_tablets([(SCHEME_TABLET_ID, TabletType.SCHEME, "scheme")])
        scheme = cls(ask_timestamps, may_be_new=not has_object_tablets(host.cell.tablets().values()))
        await host.start(SCHEME_TABLET_ID, scheme)
        return scheme

    async def start(self, storage: TabletStorage) -> None:
        """Raises StoredUnreadable, before anything is changed; CommitRefused, ShardLost. What was known stays then."""
        state = SchemeState()
        tablet = BaseTablet(storage, changed=partial(self._changed, state), changes=self.changes)
        try:
            await tablet.start()
            await self._complete(tablet, state)
            self._tablet, self._state, self._may_be_new = tablet, state, False
        finally:
            if self._held is not None:
                self._held.set_result(None)
                self._held = None

    async def _complete(self, tablet: BaseTablet, state: SchemeState) -> None:
        """Check what is stored; lay out what is not yet."""
        if tablet.row_sets:
            state.check()
        elif not self._may_be_new:
            raise StoredUnreadable("the scheme", "its log is empty, though there are tablets of topics")
        else:
            await tablet.change(lay_out)
        if SETTINGS not in tablet.row_sets:  # laid out before nodes could be set
            await tablet.change(lay_out_settings)

    def _changed(self, state: SchemeState, row_set: str, key: Key, row: Row | None) -> None:
        state.follow(row_set, key, row)
        follow = self._followers.get(row_set)
        if follow is not None and state is self._state:
            follow(key, row)

    def follow(self, row_set: str, follow: RowFollower) -> None:
        """Have every change of a row set from now on reported in the turn in which it becomes durable."""
        self._followers[row_set] = follow

    async def hold(self) -> None:
        """Changes that are asked for from now on wait until the next start."""
        self._held = asyncio.get_running_loop().create_future()
        await self._tablet.stop()

    async def stop(self) -> None:
        await self._tablet.stop()

    def describe(self) -> TabletPage:
        return TabletPage(row_sets={name: len(rows) for name, rows in self._tablet.row_sets.items()})

    def samples(self) -> Iterable[TabletSample]:
        return ()

    @property
    def cluster_id(self) -> str:
        """22 characters, as Kafka's."""
        found: str = self._state.facts["cluster_id"]
        return found

    @property
    def topics(self) -> Mapping[str, TopicRecord]:
        return MappingProxyType(self._state.topics)

    @property
    def tombstones(self) -> Mapping[bytes, Tombstone]:
        """Deleted topics by topic id, until they are forgotten."""
        return MappingProxyType(self._state.tombstones)

    @property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """Return what nodes were set to while they ran, as texts, by the node's name; "" is every node."""
        return MappingProxyType(self._state.settings)

    def named_settings(self, kind: str) -> Mapping[str, Mapping[str, str]]:
        """The settings of the resources of a kind, as texts, by name."""
        return MappingProxyType(self._state.named_settings.get(kind, {}))

    @property
    def topics_by_id(self) -> Mapping[bytes, TopicRecord]:
        return MappingProxyType(self._state.topics_by_id)

    def kind_of(self, name: str) -> str | None:
        """Return the kind of the object of a name; None: there is none."""
        row = self.rows(NAMES).get((name,))
        return None if row is None else str(row["kind"])

    def rows(self, row_set: str) -> Mapping[Key, Row]:
        """Return the rows of a row set by key; none before the first object of its kind."""
        found = self._tablet.row_sets.get(row_set)
        return MappingProxyType({} if found is None else found.rows)

    def next_row(self, row_set: str, key: Key) -> Key | None:
        """Return the key of a row set that follows a key, or is it; else its first one. None without rows."""
        found = self._tablet.row_sets.get(row_set)
        if found is None or not found.rows:
            return None
        index = found.rows.bisect_left(key)
        following: Key = found.rows.keys()[index % len(found.rows)]
        return following

    def owned_tablets(self, cell: CellId | None = None) -> Iterator[OwnedTablet]:
        """Yield the tablets that objects own; `cell`: those that live there."""
        return owned_tablets(self._tablet.row_sets, cell)

    def unowned(self, tablets: Iterable[TabletRecord], cell: CellId = SYSTEM_CELL) -> Unowned:
        """Return those of a cell's tablets that no object owns."""
        return unowned_tablets(self._tablet.row_sets, tablets, cell)

    def reclaim(self, host: TabletHost, cell: CellId = SYSTEM_CELL) -> None:
        """Begin to remove what belongs to no object from the host's cell: once all that is known runs. Nothing where
        the cell has seen a later scheme, as after the system cell alone was restored."""
        for tombstone in self.tombstones.values() if cell == SYSTEM_CELL else ():
            host.reclaim(tombstone.tablets, partial(self.forget_tombstones, tombstone.topic_id))
        # Once the scheme's own cell is lost, a change may be durable that this instance does not know.
        known = KnownScheme(self._tablet.row_sets, self.changes.number, is_mirror=self._tablet.is_lost)
        reclaim_unowned(known, host, cell)

    async def change(self, plan: Callable[[RowChanges], T]) -> T:
        """Make what `plan` puts into the row sets durable, in one commit; return what it returns. It may be of objects
        of any kind. A copy of another node's scheme refuses with CommitRefused."""
        if self._is_copy:
            raise CommitRefused("this node has a copy of the scheme: changes are made at the first node")
        return await self._change(plan)

    async def copy(self, plan: Callable[[RowChanges], T]) -> T:
        """Have the rows become those of another node's scheme, or nearer to them. From now on nothing else changes
        them."""
        self._is_copy = True
        return await self._change(plan)

    async def _change(self, plan: Callable[[RowChanges], T]) -> T:
        while self._held is not None:
            await asyncio.shield(self._held)
        return await self._tablet.change(plan)

    async def reserve_tablets(self, count: int) -> tuple[TabletId, ...]:
        """Return ids that are never given again, for an object to name later."""
        return await self.change(lambda changes: self.new_tablets(changes, count))

    def new_tablets(self, changes: RowChanges, count: int) -> tuple[TabletId, ...]:
        """Return ids that are never given again, for a change to use."""
        start: int = self._state.facts["next_tablet_id"]
        if count:
            put_fact(changes, "next_tablet_id", start + count)
        return tuple(map(TabletId, range(start, start + count)))

    async def configure_node(self, node: str, settings: Mapping[str, str]) -> None:
        """Replace all that is set for a node; "" is every node."""
        await self.change(lambda changes: changes.put(SETTINGS, (node,), {"texts": dict(settings)}))

    async def change_named_settings(
        self, kind: str, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Replace what is set for a named resource by what `change` makes of it; with nothing set it is removed."""

        def plan(changes: RowChanges) -> None:
            texts = change(self.named_settings(kind).get(name, {}))
            put_named_settings(changes, self._tablet.row_sets, (kind, name), texts)

        await self.change(plan)

    async def forget_tombstones(self, *topic_ids: bytes) -> None:
        """The deleted topics' tablets are gone."""

        def plan(changes: RowChanges) -> None:
            for topic_id in topic_ids:
                changes.delete(TOMBSTONES, (topic_id,))

        await self.change(plan)

    async def producer_id_block(self) -> range:
        """Return producer ids that are never given again."""

        def plan(changes: RowChanges) -> range:
            start: int = self._state.facts["next_producer_id"]
            block = range(start, start + PRODUCER_IDS_PER_BLOCK)
            put_fact(changes, "next_producer_id", block.stop)
            return block

        return await self.change(plan)

    @property
    def feature_levels(self) -> Mapping[str, int]:
        """Return the levels that features were set to, by name."""
        found = {name: level for name, level in self._state.facts.items() if name.startswith(FEATURE)}
        return {name.removeprefix(FEATURE): level for name, level in found.items()}

    @property
    def features_epoch(self) -> int:
        """Return how often levels of features were set."""
        found: int = self._state.facts.get(FEATURES_EPOCH, 0)
        return found

    async def set_feature_levels(self, plan: Callable[[Mapping[str, int]], Mapping[str, int]]) -> None:
        """Set levels of features, those that `plan` makes of the ones that are set."""

        def change(changes: RowChanges) -> None:
            for name, level in plan(self.feature_levels).items():
                put_fact(changes, f"{FEATURE}{name}", level)
            put_fact(changes, FEATURES_EPOCH, self.features_epoch + 1)

        await self.change(change)

    @property
    def timestamps_reserved(self) -> int:
        """All timestamps of commits that any node may have given lie below; 0 before the first."""
        found: int = self._state.facts.get(TIMESTAMPS_RESERVED, 0)
        return found

    async def reserve_timestamps(self, reserved: int) -> None:
        """Let timestamps below `reserved` be given; a reservation never shrinks."""
        await self.change(
            lambda changes: put_fact(changes, TIMESTAMPS_RESERVED, max(reserved, self.timestamps_reserved))
        )
