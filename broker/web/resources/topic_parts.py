"""Figures of topics whose partitions several nodes run: each node answers with what it runs, and this one adds it up.

A node that does not answer makes the answer fail: a part would be taken for the whole.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.services.leaders import NO_NODE
from pqbroker.broker.services.topics.partitions import find_loaded
from pqbroker.broker.web.routing.every_node import ask_nodes
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic

_SUMS: Final = ("size_bytes", "record_count", "written_count")
"""Facts of a topic that are sums over its partitions."""
_RATE: Final = "records_per_s"


def partitions_here(call: Call, topic: Topic) -> Sequence[PartitionServer]:
    """Return the partitions of a topic that this node runs."""
    leaders = call.node.leaders
    if leaders.foreign_cell(topic) is None:
        return topic.partitions
    spans = [indexes for _, cell, indexes in topic.record.spans() if leaders.of_cell(cell) == leaders.own]
    return [partition for indexes in spans for partition in topic.partitions[indexes.start : indexes.stop]]


async def with_other_parts(call: Call, route: Route, topic: Topic, own: dict[str, Any]) -> dict[str, Any]:
    """Return this node's description of a topic with the figures of all nodes in it; `route`: describes it at each.
    Problem, KafkaError NOT_LEADER_OR_FOLLOWER while no node runs a part."""
    told = await _parts(call, route, topic)
    for theirs in told.values():
        _add(own, theirs)
    return {**own, "partitions": _rows_of_leaders(call, topic, own["partitions"], told)}


async def with_other_rows(call: Call, route: Route, topic: Topic, own: dict[str, Any]) -> dict[str, Any]:
    """Return this node's answer about a topic with the rows of partitions that others run, as `with_other_parts`."""
    told = await _parts(call, route, topic)
    return {**own, "partitions": _rows_of_leaders(call, topic, own["partitions"], told)}


async def with_other_tablets(
    call: Call, route: Route, topic: Topic, own: Sequence[dict[str, Any]]
) -> Sequence[dict[str, Any]]:
    """Return facts of tablets of an ordered table, each from the node that runs it, which it names; `route`: lists them
    at each node. State and cell are what the first node decides. As `with_other_parts`."""
    if len(call.node.leaders.nodes) == 1:
        return own
    told = await _parts(call, route, topic)
    by_node = {node: {row["index"]: row for row in theirs["tablets"]} for node, theirs in told.items()}
    found, leaders = list[dict[str, Any]](), call.node.leaders
    for row in own:
        node = leaders.only_node(topic, (row["index"],))
        theirs = row if node is None else by_node.get(node, {}).get(row["index"], row)
        decided = {name: row[name] for name in ("state", "cell_id")}
        found.append({**theirs, **decided, "node": leaders.number if node is None else node})
    return found


async def bounds_of_partitions(call: Call, route: Route, topic: Topic) -> Callable[[int], tuple[int, int]]:
    """Return what gives start and end of a partition of the page that is asked for, wherever it runs; it raises
    KafkaError NOT_LEADER_OR_FOLLOWER for one that no node runs. `route`: describes a topic at each node. As
    `with_other_parts`."""
    told = await _parts(call, route, topic)
    away = {row["partition"]: row for theirs in told.values() for row in theirs["partitions"]}
    leaders = call.node.leaders

    def bounds(index: int) -> tuple[int, int]:
        if leaders.only_node(topic, (index,)) is None:
            partition = find_loaded(topic, index)
            return partition.start_offset, partition.end_offset
        if index not in away:
            raise not_leader()
        return away[index]["start_offset"], away[index]["end_offset"]

    return bounds


async def _parts(call: Call, route: Route, topic: Topic) -> dict[int, Any]:
    """Return the answers of the other nodes that run partitions of a topic, by number."""
    leaders = call.node.leaders
    nodes = leaders.nodes_of(topic) - {leaders.own}
    if call.node.others() is None or not nodes:
        return {}
    if NO_NODE in nodes:
        raise not_leader()
    return await ask_nodes(call, route, [leaders.nodes.index(node) + 1 for node in nodes], call.query)


def _rows_of_leaders(
    call: Call, topic: Topic, own: Sequence[dict[str, Any]], told: Mapping[int, Any]
) -> list[dict[str, Any]]:
    """Return rows of partitions, each from the node that runs it."""
    by_node = {node: {row["partition"]: row for row in theirs["partitions"]} for node, theirs in told.items()}
    leaders = call.node.leaders
    found = ((row, leaders.only_node(topic, (row["partition"],))) for row in own)
    return [row if node is None else by_node.get(node, {}).get(row["partition"], row) for row, node in found]


async def add_other_parts(call: Call, route: Route, facts: Sequence[dict[str, Any]]) -> None:
    """Add the figures of other nodes to facts of topics, which lie in the order of their names. `route`: lists topics
    at each node. Problem."""
    if call.node.others() is None or not facts:
        return
    known = {one["name"]: one for one in facts}
    for node in range(2, len(call.node.leaders.nodes) + 1):
        async for theirs in _listed(call, route, node, facts[0]["name"], facts[-1]["name"]):
            if theirs["name"] in known:
                _add(known[theirs["name"]], theirs)


async def _listed(call: Call, route: Route, node: int, first: str, last: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yield what a node lists of the topics from one name to another, and of some beside them. Problem."""
    query = {"limit": call.node.settings.http_items_max}
    if "contains" in call.query:
        query["contains"] = call.query["contains"]
    after: str | None = first[:-1]  # a name before the first one, and behind most others
    while after is not None and after < last:
        told = await ask_nodes(call, route, [node], {**query, "after": after})
        for theirs in told[node]["topics"]:
            yield theirs
        after = told[node]["next"]


def _add(own: dict[str, Any], theirs: Mapping[str, Any]) -> None:
    for name in _SUMS:
        own[name] += theirs[name]
    rates = own[_RATE], theirs[_RATE]
    own[_RATE] = None if None in rates else round(sum(rates), 3)
