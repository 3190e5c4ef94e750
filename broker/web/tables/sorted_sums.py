"""Facts of sorted tables whose tablets several nodes run: those of tablets from their nodes, and sums over nodes."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.tables.sorted_parts import ask, nodes_of, unknown
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tasks import amplification

_OF_FIRST: Final = ("state", "cell_id")
"""Facts that the first node decides, and knows earlier."""
_FLUSHED: Final = ("flushed_rows", "flushed_bytes", "rewritten_bytes")


async def ask_others(
    call: Call, route: Route, table: SortedTable, indexes: Sequence[int], query: Mapping[str, Any]
) -> Mapping[int, dict[str, Any]]:
    """Return the answers of the other nodes that run some of these tablets, by their numbers. Problem."""
    nodes = sorted({*nodes_of(call, table, indexes).values()})
    answers = await asyncio.gather(*(ask(call, node, route, query=query) for node in nodes))
    return dict(zip(nodes, answers, strict=True))


async def with_other_tablets(
    call: Call, route: Route, table: SortedTable, shown: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return facts of a page of tablets, those of other nodes as these have them. `route`: lists tablets at each node.
    Problem."""
    indexes = [tablet["index"] for tablet in shown]
    told = await ask_others(call, route, table, indexes, page_query(indexes))
    return placed(call, table, shown, {node: answer.get("tablets") for node, answer in told.items()})


def page_query(indexes: Sequence[int]) -> dict[str, Any]:
    """Return the query that lists these tablets, which follow each other."""
    first = {"after": indexes[0] - 1} if indexes and indexes[0] else dict[str, Any]()
    return {**first, "limit": max(len(indexes), 1)}


def placed(
    call: Call, table: SortedTable, shown: Sequence[dict[str, Any]], told: Mapping[int, Any]
) -> list[dict[str, Any]]:
    """Return facts of tablets, those of other nodes out of what these list. A tablet that its node does not know, since
    it was made just now, is shown as this node has it. Problem for a list that is none."""
    leaders = call.node.leaders
    if len(leaders.nodes) == 1:
        return list(shown)
    rows = {node: _by_id(node, tablets) for node, tablets in told.items()}
    nodes, own = nodes_of(call, table, [tablet["index"] for tablet in shown]), leaders.number
    found: list[dict[str, Any]] = []
    for tablet in shown:
        node = nodes.get(tablet["index"], own)
        listed = rows.get(node)
        theirs = tablet if listed is None else listed.get(tablet["tablet_id"], tablet)
        of_first: dict[str, Any] = {name: tablet[name] for name in _OF_FIRST if name in tablet}
        found.append({**theirs, **of_first, "node": node})
    return found


def _by_id(node: int, tablets: Any) -> dict[int, dict[str, Any]]:
    try:
        return {tablet["tablet_id"]: tablet for tablet in tablets}
    except (LookupError, TypeError):
        raise unknown(node) from None


def sum_of(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return documents of numbers as one, also where these lie in documents of their fields."""
    found: dict[str, Any] = {}
    for document in documents:
        for name, value in document.items():
            known = found.get(name)
            if isinstance(value, Mapping):
                found[name] = sum_of([known or {}, value])
            else:
                found[name] = value if known is None else known + value
    return found


def whole_inside(own: dict[str, Any], told: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Return what happens in a table, but for its tablets, at all nodes together. Problem."""
    if not told:
        return own
    whole, parts = dict(own), [own, *told.values()]
    try:
        whole["node"] = sum_of(part["node"] for part in parts)
        flushed = sum_of({name: part[name] for name in _FLUSHED} for part in parts)
        whole |= {**flushed, "amplification": amplification(flushed["flushed_bytes"], flushed["rewritten_bytes"])}
        whole["running"] = [task for part in parts for task in part["running"]]
        ended = [task for part in parts for task in part["ended"]]
        whole["ended"] = sorted(ended, key=lambda task: int(task["ended_ms"]), reverse=True)
    except (LookupError, TypeError, ValueError):
        raise unknown(min(told)) from None
    return whole


def whole_explanation(own: dict[str, Any], told: Mapping[int, dict[str, Any]], tasks_max: int) -> dict[str, Any]:
    """Return the tasks that a table calls for at all nodes together, the most urgent ones first. Problem."""
    if not told:
        return own
    whole, parts = dict(own), [own, *told.values()]
    try:
        tasks = [task for part in parts for task in part["tasks"]]
        tasks.sort(key=lambda task: (task["slack"], -task["effect"], task["tablet_index"], task["kind"]))
        whole["tasks"] = [{**task, "order": order} for order, task in enumerate(tasks[:tasks_max], 1)]
        whole["task_count"] = sum(part["task_count"] for part in parts)
        whole["node_tasks"] = sum_of(part["node_tasks"] for part in parts)
        for name in ("balance", "left_out", "rests"):
            whole[name] = [one for part in parts for one in part[name]]
    except (LookupError, TypeError, ValueError):
        raise unknown(min(told)) from None
    return whole
