"""Reading and setting by path: `GET` and `PUT /v1/tree/{path}`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.topics import directories
from pqbroker.broker.services.topics.finding import find_topic, visible_topics
from pqbroker.broker.services.topics.topic_names import check_topic_name
from pqbroker.broker.services.topics.topic_schemas import schema_of
from pqbroker.broker.web.resources import topics
from pqbroker.broker.web.routing.problems import Problem, bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.routing.schemas import SHOWN
from pqbroker.broker.web.tree.node import TreeNode, attributes_of, directory
from pqbroker.broker.web.tree.paths import TreePath, no_attribute, no_node, parse_path, value_at, with_value
from pqbroker.broker.web.tree.system import find_system
from pqbroker.broker.web.tree.table_nodes import SORTED_NODES, ordered_node
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE
from pqbroker.storage.tablets.scheme_objects import SORTED_TABLE
from pqbroker.tables.paths import ROOT, SYSTEM, has_path, table_path
from pqbroker.tables.refusals import nearest


async def get(call: Call) -> Any:
    """A value: of an attribute, of what the path names; a directory is an object of the names below it."""
    path = parse_path(call.path["path"])
    node = await _find(call, path)
    if call.query.get("children"):
        return _names(call, path, node)
    if path.attribute is not None:
        return _attribute(node, path)
    return dict.fromkeys(_names(call, path, node)) if node.value is None else node.value


async def put(call: Call) -> Any:
    """Set an attribute, or something in it; the value that it has now."""
    path = parse_path(call.path["path"])
    if not path.attribute:
        raise Problem(400, "NOT_SETTABLE", f"{path} is no attribute", "Give one, such as //shop/orders/@max_data_ttl.")
    node, name = await _found_or_made(call, path), path.attribute[0]
    write = node.settable.get(name)
    if write is None:
        known = sorted(node.settable)
        cure = nearest(name[:SHOWN], known) if known else "Nothing of it can be set by its path."
        raise Problem(400, "NOT_SETTABLE", f"{path} cannot be set", cure)
    await write(with_value(node.attributes.get(name), path.attribute[1:], call.body, path))
    return _attribute(await _found_or_made(call, path), path)


async def _found_or_made(call: Call, path: TreePath) -> TreeNode:
    """Find a node as `_find` does, or a directory that has nothing in it: setting its bundle makes it."""
    try:
        return await _find(call, path)
    except Problem as problem:
        if problem.code != "NO_NODE" or path.attribute != (directories.BUNDLE,) or path.names[0] == SYSTEM:
            raise
    check_topic_name(".".join(path.names))
    return _directory(call, path, ())


async def _find(call: Call, path: TreePath) -> TreeNode:
    """Problem NO_NODE; KafkaError for what the caller may not see."""
    if path.names[:1] == (SYSTEM,):
        return await find_system(call, path)
    name, below = ".".join(path.names), await _below(call, path.names)
    scheme = call.node.cell.current.scheme
    if scheme.kind_of(name) == SORTED_TABLE:
        node: TreeNode = (await SORTED_NODES.get()).sorted_node(call, below, name)
        return node
    is_directory = below or name in directories.directory_names(scheme)
    if not path.names or (is_directory and call.node.cell.current.topics.get(name, or_static=True) is None):
        return _directory(call, path, below)
    try:
        topic = find_topic(call, AclOperation.DESCRIBE, name, or_static=True)
    except KafkaError as refusal:
        if refusal.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        raise no_node(path) from None
    if topic.record.table is not None:
        return ordered_node(call, below, topic)
    document = topics.shown(replace(call, query={}), topic)
    schema = {"schema": list(stored.columns)} if (stored := schema_of(topic)) else {}
    attributes = attributes_of("topic", document) | {"path": table_path(topic.record.name), **schema}
    return TreeNode(below, attributes, document)


async def _below(call: Call, names: tuple[str, ...]) -> list[str]:
    """The names of directories, topics and tables below a directory, in order."""
    prefix = ".".join((*names, ""))
    topics = (topic.record.name for topic in await visible_topics(call, AclOperation.DESCRIBE, or_static=True))
    below = (
        name[len(prefix) :].partition(".")[0]
        for name in (*topics, *await _sorted_names(call), *directories.directory_names(call.node.cell.current.scheme))
        if name.startswith(prefix) and has_path(name)
    )
    return sorted({*below} if names else {*below, SYSTEM})


async def _sorted_names(call: Call) -> list[str]:
    if not call.node.cell.current.sorted_tables.tables:
        return []
    names: list[str] = (await SORTED_NODES.get()).sorted_names(call)
    return names


def _directory(call: Call, path: TreePath, below: Sequence[str]) -> TreeNode:
    """Return a directory. Topics and tables made below it have its bundle; the root has the default one."""
    if not path.names:
        return directory(below)
    scheme, name = call.node.cell.current.scheme, ".".join(path.names)

    async def set_bundle(value: Any) -> None:
        check_access(call, AclOperation.ALTER)
        if value is not None and value not in call.node.cell.current.hive.bundles:
            cure = f"Give one of {', '.join(sorted(call.node.cell.current.hive.bundles))}, or null."
            raise Problem(400, "NO_BUNDLE", f"there is no bundle {str(value)[:100]!r}", cure)
        await directories.set_bundle(scheme, name, value, call.node.settings)

    bundle = directories.own_bundle(scheme, name) or directories.bundle_of(scheme, name) or DEFAULT_BUNDLE
    attributes = {"type": "directory", directories.BUNDLE: bundle}
    return TreeNode(below, attributes, settable={directories.BUNDLE: set_bundle})


def _attribute(node: TreeNode, path: TreePath) -> Any:
    assert path.attribute is not None
    if not path.attribute:
        return dict(node.attributes)
    name, steps = path.attribute[0], path.attribute[1:]
    long = node.long_attributes.get(name)
    if long is None and name not in node.attributes:
        raise no_attribute(path, {**node.attributes, **node.long_attributes})
    return value_at(long() if long is not None else node.attributes[name], steps, path)


def _names(call: Call, path: TreePath, node: TreeNode) -> list[str]:
    """Return the names of this page. Raise Problem where more exist than may be listed, and no page was asked for."""
    names, after = list(node.names), call.query.get("after")
    if after is not None:
        behind = names.index(after) + 1 if after in names else 0
        names = names[behind:]
    if "limit" in call.query:
        return names[: call.limit()]
    most = call.node.settings.http_items_max
    if len(names) > most:
        raise bad_request(f"{ROOT}{'/'.join(path.names)} has {len(names)} names; list them with limit and after")
    return names
