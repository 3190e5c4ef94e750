"""Nodes under //sys: tablets of topics and tables, cells and bundles of cells, as the doors for them answer."""

from functools import partial
from typing import Any

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.topics.directories import BUNDLE
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.broker.web.resources import cells, tablets
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables.showing import shown_tablet
from pqbroker.broker.web.tree.node import TreeNode, attributes_of, directory
from pqbroker.broker.web.tree.paths import TreePath, no_node
from pqbroker.conf.table_attributes import in_force
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.blobs.blob_id import BlobId, channel_bounds
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, SNAPSHOT_CHANNEL
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS
from pqbroker.tables.paths import table_path

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
        return await _tablet(call, path, rest) if rest else directory(map(str, sorted(_topics_by_tablet(call))))
    check_access(call, AclOperation.DESCRIBE)
    if kind == _CELLS:
        return await _cell(call, path, rest)
    if kind == _BUNDLES:
        return _bundle(call, path, rest)
    raise no_node(path)


def _topics_by_tablet(call: Call) -> dict[TabletId, Topic]:
    return {tablet: topic for topic in every_topic(call, AclOperation.DESCRIBE) for tablet in topic.record.tablets}


async def _tablet(call: Call, path: TreePath, names: tuple[str, ...]) -> TreeNode:
    topic = {str(tablet): topic for tablet, topic in _topics_by_tablet(call).items()}.get(names[0])
    table = None if topic is None else topic.record.table
    if topic is None or (names[1:] and (table is None or names[1:] not in (_CONFIG[:1], _CONFIG))):
        raise no_node(path)
    if names[1:] == _CONFIG[:1]:
        return directory(_CONFIG[1:])
    tablet = TabletId(int(names[0]))
    index = topic.record.tablets.index(tablet)
    if table is not None and names[1:]:
        return TreeNode(value=in_force(table.mounted.of_tablet(index)), attributes={"type": "document"})
    shown = await _described(call, topic, tablet, topic.record.cell_of(index))
    if table is not None:
        shown |= shown_tablet(topic, topic.partitions[index])
    attributes = attributes_of("tablet", shown) | {"table_path": table_path(topic.record.name)}
    return TreeNode(() if table is None else _CONFIG[:1], attributes, shown)


async def _described(call: Call, topic: Topic, tablet: TabletId, cell: CellId) -> dict[str, Any]:
    """Facts of a tablet; while its cell is not open, those that the scheme has."""
    try:
        described: dict[str, Any] = await tablets.shown(call, tablet)
    except Problem as problem:
        if problem.code != tablets.UNKNOWN_TABLET:
            raise
        return {"id": tablet, "topic": topic.record.name, "state": "offline", "cell": str(cell)}
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
