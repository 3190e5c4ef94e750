"""Sorted tables whose tablets several nodes run: each node answers for its part, and the first one puts the answers
together. A node that does not answer makes the answer fail: a part would be taken for the whole.

Each part of a lookup without a timestamp is as its node has it at that moment, with all that is acknowledged.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from pqbroker.broker.services.sorted_tables import rows
from pqbroker.broker.services.sorted_tables.rows import PrefixLookup, tablets_of_keys, tablets_of_prefix
from pqbroker.broker.services.sorted_tables.tablets_away import tablets_away
from pqbroker.broker.services.tables.finding import TabletRange
from pqbroker.broker.web.routing.forwarded_calls import forward
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.tables.routes import LOOKUP
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.lookups import FOUND_KEYS_MAX
from pqbroker.tables.serving.table import SortedTable

_SPLIT_IN_LOOP: Final = 2_000
"""Keys that are taken apart in the loop's thread: a millisecond."""


def nodes_of(call: Call, table: SortedTable, indexes: Sequence[int]) -> Mapping[int, int]:
    """Return the other node of each of these tablets that one runs."""
    return {index: node for node, some in tablets_away(call, table, indexes).items() for index in some}


async def ask(call: Call, node: int, route: Route, *, query: Any = None, body: Any = None) -> dict[str, Any]:
    """Return the answer of another node, which is asked for its part by a call as this one. Problem."""
    others = call.node.others()
    assert others is not None, "only the first node knows tablets of others"
    asked = replace(call, query=call.query if query is None else query, body=body)
    answer = await forward(others, node, route, asked)
    if not isinstance(answer, dict):
        raise unknown(node)
    return answer


def unknown(node: int) -> Problem:
    """Return the problem of an answer that is none."""
    text = f"node {node} sent no answer that this version knows"
    return Problem(503, "NODE_SILENT", text, "Restart the nodes: `pqbroker cluster restart` does so one by one.")


async def look_up(call: Call, timestamp: int | None) -> list[Any]:
    """Return the rows of the keys of a body, in their order. Raises as `rows.look_up`; Problem."""
    name, keys, columns = call.path["name"], call.body["keys"], call.body.get("columns")
    if call.node.others() is None:
        return await rows.look_up(call, name, keys, timestamp, columns)
    table, indexes = await tablets_of_keys(call, name, keys)
    nodes = nodes_of(call, table, sorted({*indexes}))
    if not nodes:
        return await rows.look_up(call, name, keys, timestamp, columns)

    def split() -> dict[int | None, list[int]]:
        found: dict[int | None, list[int]] = {}
        for position, index in enumerate(indexes):
            found.setdefault(nodes.get(index), []).append(position)
        return found

    parts = split() if len(indexes) <= _SPLIT_IN_LOOP else await asyncio.to_thread(split)

    async def part(node: int | None, positions: Sequence[int]) -> Sequence[Any]:
        asked = [keys[position] for position in positions]
        if node is None:
            return await rows.look_up(call, name, asked, timestamp, columns)
        return await _rows_of(call, node, {"keys": asked}, timestamp, len(asked))

    answers = await asyncio.gather(*(part(node, positions) for node, positions in parts.items()))
    answer: list[Any] = [None] * len(keys)
    for positions, found in zip(parts.values(), answers, strict=True):
        for position, row in zip(positions, found, strict=True):
            answer[position] = row
    return answer


async def look_up_prefix(call: Call, timestamp: int | None) -> list[Any]:
    """Return the rows of the keys that begin with the prefix of a body. Raises as `rows.look_up_prefix`; Problem."""
    name, prefix, body = call.path["name"], call.body["prefix"], call.body
    tablets = TabletRange(body.get("first_tablet_index"), body.get("last_tablet_index"))
    wanted = PrefixLookup(prefix, timestamp, body.get("columns"), tablets)
    table, indexes = tablets_of_prefix(call, name, prefix)
    nodes = nodes_of(call, table, indexes)
    if not nodes:
        return await rows.look_up_prefix(call, name, wanted)
    among = {*tablets.among(name, len(table.tablets))}
    known, found = table.record, list[Any]()
    for node, run in groupby([index for index in indexes if index in among], nodes.get):
        first, *others = run
        part = TabletRange(first, others[-1] if others else first)
        if node is None:
            found += await rows.look_up_prefix(call, name, wanted._replace(tablets=part))
        else:
            asked = {"prefix": prefix, "first_tablet_index": part.first, "last_tablet_index": part.last}
            found += await _rows_of(call, node, asked, timestamp, None)
        if table.record.tablets != known.tablets:
            raise TableError("TABLE_CHANGED", f"{name} was resharded meanwhile", "Ask again.")
        if len(found) > FOUND_KEYS_MAX:
            cure = "Give more key columns, or read the rows with SQL: POST /v1/sql."
            raise TableError("TOO_MANY_ROWS", f"prefix has more than {FOUND_KEYS_MAX} rows", cure)
    return found


async def _rows_of(
    call: Call, node: int, wanted: dict[str, Any], timestamp: int | None, count: int | None
) -> list[Any]:
    """Return rows that another node looks up. `count`: how many there have to be. Problem."""
    if timestamp is not None:
        wanted["timestamp"] = timestamp
    if "columns" in call.body:
        wanted["columns"] = call.body["columns"]
    found = (await ask(call, node, LOOKUP, body=wanted)).get("rows")
    if not isinstance(found, list) or count not in (None, len(found)):
        raise unknown(node)
    return found
