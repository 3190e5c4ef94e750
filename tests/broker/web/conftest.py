import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.listeners import Address
from tests.broker.conftest import Node


class Web:
    """A node in this process, asked over HTTP."""

    def __init__(self, node: Node, session: aiohttp.ClientSession) -> None:
        self.node = node
        self._session = session

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of an answer; None for an empty one. `body` is JSON, or bytes as they are."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        sent |= {name.replace("_", "-"): text for name, text in headers.items()}
        stream = None if data is None else io.BytesIO(data)
        async with self._session.request(method, self.url(path), data=stream, headers=sent) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else None

    async def refusal(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str, str]:
        """Status, code and message of an error, which has a cure too."""
        status, document = await self.ask(method, path, body, **headers)
        assert list(document) == ["error"]
        error = document["error"]
        assert set(error) - {"number"} == {"code", "message", "cure"}
        assert error["cure"]
        return status, error["code"], error["message"]

    async def lines(self, path: str, body: Any) -> list[Any]:
        """The documents of an answer of JSON lines to a POST."""
        async with self._session.post(self.url(path), json=body) as response:
            text = await response.text()
            assert (response.status, response.content_type) == (200, "application/x-ndjson"), text
            return [json.loads(line) for line in text.splitlines()]

    async def text(self, path: str) -> str:
        async with self._session.get(self.url(path)) as response:
            assert response.status == 200
            return await response.text()

    def url(self, path: str) -> str:
        return f"http://{self.node.server.http_address}{path}"


@pytest.fixture
async def serve(start: Callable[..., Awaitable[Node]]) -> AsyncIterator[Callable[..., Awaitable[Web]]]:
    """Starts nodes with settings, HTTP included."""
    async with aiohttp.ClientSession() as session:

        async def serve_one(**settings: Any) -> Web:
            return Web(await start(http=Address("127.0.0.1", 0), **settings), session)

        yield serve_one


@pytest.fixture
async def web(serve: Callable[..., Awaitable[Web]]) -> Web:
    return await serve()
