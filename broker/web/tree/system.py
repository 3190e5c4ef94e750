"""Nodes under //sys: tablets of topics and tables, cells and bundles of cells, as the doors for them answer."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.topics.directories import BUNDLE
from pqbroker.broker.services.topics.finding import visible_topics
from pqbroker.broker.web.resources import cells, tablets
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables.showing import shown_tablet
from pqbroker.broker.web.tree.node import TreeNode, attributes_of, directory
from pqbroker.broker.web.tree.paths import TreePath, no_node
from pqbroker.broker.web.tree.table_nodes import SORTED_NODES
from pqbroker.conf.table_attributes import in_force
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.blobs.blob_id import BlobId, channel_bounds
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, SNAPSHOT_CHANNEL
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS
from pqbroker.tables.paths import table_path

if TYPE_CHECKING:
    from pqbroker.broker.web.tree.sorted_nodes import SortedPlace

_TABLETS, _CELLS, _BUNDLES = "tablets", "tablet_cells", "tablet_cell_bundles"
_CHANNELS = {"changelogs": LOG_CHANNEL, "snapshots": SNAPSHOT_CHANNEL}
_BLOB_DEPTH = 2
"""Names below a cell that a blob of its log has."""
_CONFIG = ("orchid", "config")
"""Path below a tablet to the attributes in force."""


async def find_system(call: Call, path: TreePath) -> TreeNode:
    """A node under //sys. Problem NO_NODE."""
    names = path.names[1:]
    if not names:
        return directory((_CELLS, _BUNDLES, _TABLETS))
    kind, rest = names[0], names[1:]
    if kind == _TABLETS:
        return await _tablet(call, path, rest) if rest else directory(map(str, sorted(await _places(call))))
    check_access(call, AclOperation.DESCRIBE)
    if kind == _CELLS:
        return await _cell(call, path, rest)
    if kind == _BUNDLES:
        return _bundle(call, path, rest)
    raise no_node(path)


class _TopicPlace(NamedTuple):
    """The place of a tablet of a topic, or of a table that is one."""

    topic: Topic
    number: int

    @property
    def name(self) -> str:
        return self.topic.record.name

    @property
    def cell(self) -> CellId:
        return self.topic.record.cell_of(self.number)

    @property
    def config(self) -> dict[str, Any] | None:
        """Return the attributes that act in a table's tablet."""
        table = self.topic.record.table
        return None if table is None else in_force(table.mounted.of_tablet(self.number))

    def shown(self, call: Call) -> dict[str, Any]:
        """Return what a table says of the tablet; a topic says nothing."""
        return {} if self.topic.record.table is None else shown_tablet(self.topic, self.topic.partitions[self.number])


async def _places(call: Call) -> "dict[TabletId, _TopicPlace | SortedPlace]":
    """Return the place of each tablet of a topic or table that the caller may see."""
    found: dict[TabletId, _TopicPlace | SortedPlace] = {
        tablet: _TopicPlace(topic, index)
        for topic in await visible_topics(call, AclOperation.DESCRIBE)
        for index, tablet in enumerate(topic.record.tablets)
    }
    if call.node.cell.current.sorted_tables.tables:
        found |= (await SORTED_NODES.get()).sorted_tablets(call)
    return found


async def _tablet(call: Call, path: TreePath, names: tuple[str, ...]) -> TreeNode:
    tablet, place = next(
        ((tablet, place) for tablet, place in (await _places(call)).items() if str(tablet) == names[0]), (None, None)
    )
    if tablet is None or place is None:
        raise no_node(path)
    config = place.config
    if names[1:] and (config is None or names[1:] not in (_CONFIG[:1], _CONFIG)):
        raise no_node(path)
    if names[1:] == _CONFIG[:1]:
        return directory(_CONFIG[1:])
    if names[1:]:
        return TreeNode(value=config, attributes={"type": "document"})
    shown = await _described(call, tablet, place.name, place.cell) | place.shown(call)
    attributes = attributes_of("tablet", shown) | {"table_path": table_path(place.name)}
    return TreeNode(() if config is None else _CONFIG[:1], attributes, shown)


async def _described(call: Call, tablet: TabletId, name: str, cell: CellId) -> dict[str, Any]:
    """Facts of a tablet; while its cell is not open, those that the scheme has."""
    try:
        described: dict[str, Any] = await tablets.shown(call, tablet)
    except Problem as problem:
        if problem.code not in (tablets.UNKNOWN_TABLET, tablets.CLOSED_TABLET):
            raise
        node = call.node.leaders.other_node(cell)
        of_node = {"state": "offline"} if node is None else {"state": "at another node", "node": node}
        return {"id": tablet, "topic": name, **of_node, "cell": str(cell)}
    return described


async def _cell(call: Call, path: TreePath, names: tuple[str, ...]) -> TreeNode:
    opened = call.node.cell.current
    known = {str(cell): cell for cell in cells.all_cells(opened)}
    if not names:
        return directory(known)
    cell = known.get(names[0])
    if cell is None:
        raise no_node(path)
    if names[1:]:
        return await _log(call, path, cell, names[1:])
    shown = cells.shown_cell(opened, cell)
    leader = call.node.leaders.of_cell(cell)
    attributes = attributes_of("tablet_cell", shown, bundle=BUNDLE) | {
        "peers": [{"address": str(leader), "state": "leading" if shown["generation"] else "none"}],
        "status": {"health": shown["health"], "decommissioned": False},
        "total_statistics": {"tablet_count": shown["tablets"]},
    }
    return TreeNode(_CHANNELS if opened.cells.host(cell) is not None else (), attributes, shown)


async def _log(call: Call, path: TreePath, cell: CellId, names: tuple[str, ...]) -> TreeNode:
    """The log blobs, or the parts of snapshots, of a cell's own tablets: what a start would read."""
    host = call.node.cell.current.cells.host(cell)
    if names[0] not in _CHANNELS or len(names) > _BLOB_DEPTH:
        raise no_node(path)
    if host is None:
        text = f"there is no {TreePath(path.names)} now: cell {cell} is not open"
        raise Problem(404, "NO_NODE", text, f"//sys/{_CELLS}/{cell}/@health, or `pqbroker cell list`, says why.")
    found: dict[str, BlobId] = {}
    for tablet, record in host.cell.tablets().items():
        if not TABLET_KINDS[record.type].belongs_to_object:
            bounds = channel_bounds(tablet, _CHANNELS[names[0]])
            stored = await host.cell.inspection.stored_blobs(*bounds, call.node.settings.http_items_max + 1)
            found |= {str(blob): blob for blob in map(BlobId.from_key, stored)}
    if not names[1:]:
        return directory(found)
    blob = found.get(names[1])
    if blob is None:
        raise no_node(path)
    facts = {"id": names[1], **{name: getattr(blob, name) for name in ("tablet", "generation", "step", "size")}}
    return TreeNode(attributes=attributes_of("blob", facts), value=facts)


def _bundle(call: Call, path: TreePath, names: tuple[str, ...]) -> TreeNode:
    opened = call.node.cell.current
    if not names:
        return directory(sorted(opened.hive.bundles))
    bundle = opened.hive.bundles.get(names[0])
    if bundle is None or names[1:]:
        raise no_node(path)

    async def change(attribute: str, value: Any) -> Any:
        check_access(call, AclOperation.ALTER)
        return await cells.changed(call, bundle.name, {attribute: value})

    shown = cells.shown_bundle(opened, bundle)
    attributes = attributes_of("tablet_cell_bundle", shown, cells="tablet_cell_ids")
    attributes["tablet_cell_count"] = len(shown["cells"])
    settable = {name: partial(change, name) for name in cells.CHANGES}
    return TreeNode(attributes=attributes, value=shown, settable=settable)
