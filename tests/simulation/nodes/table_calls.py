"""Calls of tables at the first node, as its HTTP routes serve them; what a connection would add is not simulated."""

import asyncio
from typing import Any

from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.ground.refusals import REFUSED
from pqbroker.broker.web.routing.forwarded_calls import serve
from pqbroker.broker.web.routing.problems import Problem, of_error
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.served import ROUTES
from tests.simulation.nodes.cluster import Cluster
from tests.simulation.nodes.processes import SimulatedProcess

FIRST = 1
LOOKS_MAX = 8
BACK_OFF_S = 0.1
ROUTES_BY_NAME = {f"{route.method} {route.path.removeprefix('/v1/')}": route for route in ROUTES}
"""Routes, as in `POST tables/{name}/rows`."""

Told = tuple[int, Any]
"""Status and document of an answer."""


class TableCalls:
    """One client's calls."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def ask(self, route: str, body: Any = None, **path: Any) -> Told | None:
        """Return the answer of the first node; None: its process died before it answered, or does not serve."""
        process = self._cluster.processes.get(FIRST)
        if process is None or process.is_dead or process.server is None:
            await asyncio.sleep(BACK_OFF_S)
            return None
        answer: asyncio.Future[Told | None] = asyncio.get_running_loop().create_future()

        def die() -> None:
            if not answer.done():
                answer.set_result(None)

        process.ends.append(die)
        process.run(_begin, process, ROUTES_BY_NAME[route], path, body, answer)
        try:
            return await answer
        finally:
            if not process.is_dead:
                process.ends.remove(die)


def _begin(
    process: SimulatedProcess, route: Route, path: dict[str, Any], body: Any, answer: "asyncio.Future[Told | None]"
) -> None:
    task = asyncio.get_running_loop().create_task(_serve(process, route, path, body))
    process.work.add(task)

    def tell(task: "asyncio.Task[Told]") -> None:
        process.work.discard(task)
        if answer.done():
            return
        if task.cancelled():
            answer.set_result(None)
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())

    task.add_done_callback(tell)


async def _serve(process: SimulatedProcess, route: Route, path: dict[str, Any], body: Any) -> Told:
    node = process.server.node
    call = Call(node, path, {}, body, Looks(LOOKS_MAX).of("client"), holder="client", host="client")
    try:
        return route.status, await serve(route, call)
    except Problem as problem:
        return problem.status, problem.document()
    except REFUSED as refusal:
        shown = of_error(refusal)
        return shown.status, shown.document()
