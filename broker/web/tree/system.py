"""Nodes under //sys: tablets of topics and tables, cells and bundles of cells, as the doors for them answer."""

from dataclasses import replace
from typing import Any

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.broker.web.resources import cells, tablets
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables import commands
from pqbroker.broker.web.tree.node import TreeNode, directory
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
        return await _bundle(call, path, rest)
    raise no_node(path)


def _topics_by_tablet(call: Call) -> dict[TabletId, Topic]:
    return {tablet: topic for topic in every_topic(call, AclOperation.DESCRIBE) for tablet in topic.record.tablets}


async def _tablet(call: Call, path: TreePath, names: tuple[str, ...]) -> TreeNode:
    found = {str(tablet): (tablet, topic) for tablet, topic in _topics_by_tablet(call).items()}.get(names[0])
    if found is None:
        raise no_node(path)
    tablet, topic = found
    if names[1:]:
        return _tablet_config(path, topic, tablet, names[1:])
    index, is_table = topic.record.tablets.index(tablet), topic.record.table is not None
    shown = await _described(call, topic, tablet, topic.record.cell_of(index))
    if is_table:
        of_table = replace(call, path={"name": topic.record.name}, query={"after": index - 1, "limit": 1})
        shown |= (await commands.list_tablets(of_table))["tablets"][0]
    attributes = {"type": "tablet", "table_path": table_path(topic.record.name), **shown}
    return TreeNode(_CONFIG[:1] if is_table else (), attributes, shown)


async def _described(call: Call, topic: Topic, tablet: TabletId, cell: CellId) -> dict[str, Any]:
    """Facts of a tablet; while its cell is not open, those that the scheme has."""
    try:
        described: dict[str, Any] = await tablets.describe(replace(call, path={"tablet": tablet}))
    except Problem as problem:
        if problem.code != tablets.UNKNOWN_TABLET:
            raise
        return {"id": tablet, "topic": topic.record.name, "state": "offline", "cell": str(cell)}
    return described


def _tablet_config(path: TreePath, topic: Topic, tablet: TabletId, names: tuple[str, ...]) -> TreeNode:
    table = topic.record.table
    if table is None or names not in (_CONFIG[:1], _CONFIG):
        raise no_node(path)
    if names == _CONFIG[:1]:
        return directory(_CONFIG[1:])
    index = topic.record.tablets.index(tablet)
    return TreeNode(value=in_force(table.mounted.of_tablet(index)), attributes={"type": "document"})


async def _cell(call: Call, path: TreePath, names: tuple[str, ...]) -> TreeNode:
    known = {str(cell["id"]): cell for cell in (await cells.list_cells(call))["cells"]}
    if not names:
        return directory(known)
    cell = known.get(names[0])
    if cell is None:
        raise no_node(path)
    if names[1:]:
        return await _log(call, path, CellId(cell["id"]), names[1:])
    leader = call.node.leaders.of_cell(CellId(cell["id"]))
    attributes = {
        "type": "tablet_cell",
        "id": cell["id"],
        "peers": [{"address": str(leader), "state": "leading" if cell["generation"] else "none"}],
        "tablet_cell_bundle": cell["bundle"],
        "status": {"health": cell["health"], "decommissioned": False},
        "health": cell["health"],
        "total_statistics": {"tablet_count": cell["tablets"]},
    }
    is_open = call.node.cell.current.cells.host(CellId(cell["id"])) is not None
    return TreeNode(_CHANNELS if is_open else (), attributes, cell)


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
    return TreeNode(attributes={"type": "blob", **facts}, value=facts)


async def _bundle(call: Call, path: TreePath, names: tuple[str, ...]) -> TreeNode:
    known = {bundle["name"]: bundle for bundle in (await cells.list_bundles(call))["bundles"]}
    if not names:
        return directory(known)
    bundle = known.get(names[0])
    if bundle is None or names[1:]:
        raise no_node(path)

    async def change(name: str, value: Any) -> Any:
        check_access(call, AclOperation.ALTER)
        return await cells.change_bundle(replace(call, path={"name": names[0]}, body={name: value}))

    attributes = {
        "type": "tablet_cell_bundle",
        "name": bundle["name"],
        "options": bundle["options"],
        "node_tag_filter": bundle["node_tag_filter"],
        "health": bundle["health"],
        "tablet_cell_count": len(bundle["cells"]),
        "tablet_cell_ids": bundle["cells"],
    }
    settable = {name: lambda value, name=name: change(name, value) for name in ("options", "node_tag_filter")}
    return TreeNode(attributes=attributes, value=bundle, settable=settable)
