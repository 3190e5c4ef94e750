"""The node's HTTP side: /health and /metrics. No state of its own; the console and the admin API are not here yet."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from pqbroker.broker.addresses import Address
from pqbroker.broker.cell_owner import CellOwner
from pqbroker.broker.context import Node
from pqbroker.broker.listeners import bind

SHUTDOWN_TIMEOUT_S = 1.0


async def start_http(node: Node, owner: CellOwner, address: Address) -> tuple[Callable[[], Awaitable[None]], Address]:
    """Serve on an address; returns what ends it, and the address with its port. AddressError."""
    sockets, bound = bind(address)
    runner = web.AppRunner(_application(node, owner), access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    for listening in sockets:
        await web.SockSite(runner, listening).start()
    return runner.cleanup, bound


def _application(node: Node, owner: CellOwner) -> web.Application:
    async def health(_: web.Request) -> web.Response:
        """200 while the cell is open, 503 while it is not: what a load balancer or a supervisor asks."""
        is_open = owner.is_open
        state = {"status": "ok" if is_open else "cell lost", "node": node.settings.node_id, "cluster": node.cluster_id}
        return web.json_response(state, status=200 if is_open else 503)

    async def metrics(_: web.Request) -> web.Response:
        from pqbroker.broker.http.exposition import CONTENT_TYPE, exposition

        return web.Response(body=exposition(node.metrics), headers={"Content-Type": CONTENT_TYPE})

    application = web.Application()
    application.router.add_get("/health", health)
    application.router.add_get("/metrics", metrics)
    return application
