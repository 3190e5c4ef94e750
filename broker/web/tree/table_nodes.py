"""Nodes of tables: of ordered and static ones, and what those of sorted ones have in common with them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pqbroker.broker.services.queues.registrations import registered
from pqbroker.broker.services.queues.trimming import auto_trim_of, set_auto_trim
from pqbroker.broker.services.tables.attributes import set_attributes
from pqbroker.broker.services.topics import directories
from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables.showing import COUNTS, shown, shown_tablet, tablets_of
from pqbroker.broker.web.tree.node import TreeNode, Write, attributes_of
from pqbroker.conf.table_attributes import in_force
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.tables.attributes import check_attributes

_MOUNT_CONFIG = "mount_config"
"""The seeds' name of all attributes that a mount takes."""


def _load_sorted_nodes() -> Any:
    from pqbroker.broker.web.tree import sorted_nodes

    return sorted_nodes


SORTED_NODES = LoadedLater[Any](_load_sorted_nodes)
"""Nodes of sorted tables, loaded with the first one."""


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as the tree shows it: its document, what is said beside that, its tablets and how they are shown, and
    how its attributes are set."""

    document: Mapping[str, Any]
    facts: Mapping[str, Any]
    tablets: Sequence[Any]
    show_tablet: Callable[[Any], dict[str, Any]]
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Checks attributes, and adds the defaults of those that are left out. TableError INVALID_ATTRIBUTE."""
    change: Callable[[Mapping[str, Any]], Awaitable[Any]]
    settable: Mapping[str, Write] = field(default_factory=dict)
    """Attributes that are set in ways of their own."""


def table_node(call: Call, below: Sequence[str], view: TableView) -> TreeNode:
    """Return the node of a table; each of its attributes can be set, alone or as a part of them all."""
    set_now: Mapping[str, Any] = view.document["attributes"]

    async def set_one(name: str, value: Any) -> None:
        await view.change({name: value})

    async def set_all(value: Any) -> None:
        """Set the attributes of the object; those that are left out go back to their defaults."""
        if not isinstance(value, dict):
            raise bad_request(f"{_MOUNT_CONFIG} is an object of attributes")
        await view.change({name: given for name, given in view.complete(value).items() if given != set_now[name]})

    def list_tablets() -> list[dict[str, Any]]:
        most, name = call.node.settings.http_items_max, view.document["name"]
        if len(view.tablets) > most:
            raise bad_request(f"there are more than {most} tablets: GET /v1/tables/{name}/tablets pages them")
        return [view.show_tablet(tablet) for tablet in view.tablets]

    names = {"bundle": directories.BUNDLE, "state": "tablet_state", "attributes": _MOUNT_CONFIG}
    attributes = {**attributes_of("table", view.document, **names), **view.facts, **set_now}
    settable = {name: partial(set_one, name) for name in set_now} | {_MOUNT_CONFIG: set_all} | {**view.settable}
    return TreeNode(below, attributes, view.document, {"tablets": list_tablets}, settable)


def ordered_node(call: Call, below: Sequence[str], topic: Topic) -> TreeNode:
    """Return the node of a table that is a topic, or static."""

    def complete(given: Mapping[str, Any]) -> Mapping[str, Any]:
        check_attributes(given)
        return in_force(given)

    of_queue = {
        "auto_trim_config": auto_trim_of(topic.config),
        "registrations": [
            {"consumer": consumer, "vital": vital} for consumer, vital in registered(topic.config).items()
        ],
    }
    view = TableView(
        shown(topic), {"id": topic.record.topic_id.hex(), **({} if topic.record.is_static else of_queue)},
        tablets_of(topic), partial(_shown, call, topic), complete, partial(set_attributes, call, topic.record.name),
        {} if topic.record.is_static else {"auto_trim_config": partial(set_auto_trim, call, topic.record.name)},
    )  # fmt: skip
    return table_node(call, below, view)


def _shown(call: Call, topic: Topic, partition: PartitionServer) -> dict[str, Any]:
    """Return all that is said of a tablet; of one that another node runs that node, without counts."""
    shown, node = shown_tablet(topic, partition), call.node.leaders.only_node(topic, (partition.index,))
    if node is None:
        return shown
    return {**{name: shown[name] for name in shown if name not in COUNTS}, "statistics": {}, "node": node}
