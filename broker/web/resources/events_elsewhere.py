"""States of what other nodes run, which the first one asks for each second while somebody follows its events. A node
that has nothing new says so alone.

A node that does not answer is asked again: what has changed shows when it does.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pqbroker.broker.web.routing.forwarded_calls import forward
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Route


class ToldStates(NamedTuple):
    """States of a node: those of its objects by kind and name, tasks of its sorted tables, and the digest of both."""

    states: Mapping[str, Mapping[str, object]]
    tasks: list[dict[str, Any]]
    digest: str


async def shown_states(
    states: Mapping[str, Mapping[str, object]], tasks: Sequence[dict[str, Any]], known: str
) -> dict[str, Any]:
    """Return states as the first node asks for them; without them where it has those of this digest."""

    def show() -> dict[str, Any]:
        shown = {"states": states, "tasks": [*tasks]}
        digest = hashlib.blake2b(json.dumps(shown).encode(), digest_size=16).hexdigest()
        return {"digest": digest} if digest == known else {"digest": digest, **shown}

    return await asyncio.to_thread(show)


class StatesElsewhere:
    """States of all other nodes, for one client that follows. `route`: serves them at each."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._told: dict[int, ToldStates] = {}
        self._asking: dict[int, asyncio.Task[ToldStates | None]] = {}

    async def look(self, call: Call, wait_s: float) -> Mapping[int, ToldStates]:
        """Return the states of nodes that have changed since the last look and come in time, by their numbers."""
        if call.node.others() is None:
            return {}
        for node in call.node.leaders.others:
            if node not in self._asking:
                self._asking[node] = asyncio.ensure_future(self._ask(call, node))
        await asyncio.wait(self._asking.values(), timeout=wait_s)
        found = {}
        for node in [node for node, asking in self._asking.items() if asking.done()]:
            told = self._asking.pop(node).result()
            if told is not None:
                found[node] = self._told[node] = told
        return found

    async def close(self) -> None:
        """Ask no more."""
        asking = list(self._asking.values())
        self._asking.clear()
        for one in asking:
            one.cancel()
        if asking:
            await asyncio.wait(asking)

    async def _ask(self, call: Call, node: int) -> ToldStates | None:
        """Return the states of a node; None: it has nothing new, or does not answer."""
        others, known = call.node.others(), self._told.get(node)
        if others is None:
            return None
        asked = replace(call, query={"digest": "" if known is None else known.digest}, body=None, headers={})
        try:
            told = await forward(others, node, self._route, asked)
            if "states" not in told:
                return None
            return ToldStates(dict(told["states"]), list(told["tasks"]), str(told["digest"]))
        except (Problem, LookupError, TypeError, ValueError):
            return None
