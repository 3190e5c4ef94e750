"""Answers that are put together from those of several nodes: each has its part, and this one, the first, asks for it.

A node that does not answer makes the answer fail: a part would be taken for the whole.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pqbroker.broker.web.routing.forwarded_calls import forward
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT

Row = dict[str, Any]
NODE: Final = Parameter(
    "node", COUNT, "Ask this node of a broker with several, by its number; without it the first one.", example=1
)


_CURE: Final = "GET /v1/cells shows the node of each cell."


def nowhere_else(_: Call) -> None:
    """Return None, as the `place` of a route whose parts are asked for from here."""


def named_node(call: Call) -> int | None:
    """Return the number of the other node that a query names. Problem for one that does not exist."""
    number: int | None = call.query.get("node")
    count = len(call.node.leaders.nodes)
    if number is not None and not 1 <= number <= count:
        nodes = f"nodes 1 to {count}" if count > 1 else "one node, 1"
        raise Problem(404, "NO_NODE", f"there is no node {number}; the broker has {nodes}", _CURE)
    return None if number in (None, call.node.leaders.number) else number


async def ask_nodes(call: Call, route: Route, nodes: Iterable[int], query: Mapping[str, Any]) -> dict[int, Any]:
    """Return the answers of other nodes by their numbers. Problem."""
    others = call.node.others()
    assert others is not None
    asked = replace(call, query=query, body=None)
    numbers = sorted(nodes)
    told = await asyncio.gather(*(forward(others, node, route, asked) for node in numbers))
    return dict(zip(numbers, told, strict=True))


async def ask_others(call: Call, route: Route, query: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the answers of all other nodes; none where this is the only one, or not the first. Problem."""
    if call.node.others() is None:
        return []
    numbers = range(2, len(call.node.leaders.nodes) + 1)
    return list((await ask_nodes(call, route, numbers, call.query if query is None else query)).values())


async def merged_page(
    call: Call, route: Route, own: tuple[Sequence[Row], bool], rows: Callable[[Any], Sequence[Row]]
) -> tuple[Sequence[Row], int | None]:
    """Return the rows of a page of all nodes, by id, and the id that the next page begins behind. `own`: this node's
    page, and whether it has more; `rows`: takes those of an answer."""
    found, has_more = list(own[0]), own[1]
    for told in await ask_others(call, route):
        found += rows(told)
        has_more = has_more or told["next"] is not None
    page, is_cut = call.page(sorted(found, key=lambda row: row["id"]))
    return page, page[-1]["id"] if page and (is_cut or has_more) else None
