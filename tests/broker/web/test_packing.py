"""Answers are packed for clients that accept it."""

import gzip
import json

import aiohttp
import pytest

from pqbroker.broker.web.replies import PACK_FROM_BYTES, PACK_IN_THREAD_BYTES
from tests.broker.web.conftest import Web


async def fetch(web: Web, path: str, accepted: str) -> tuple[dict[str, str], bytes]:
    """Headers and body as they came."""
    async with (
        aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=["Accept-Encoding"]) as session,
        session.get(web.url(path), headers={"Accept-Encoding": accepted} if accepted else {}) as answer,
    ):
        return dict(answer.headers), await answer.read()


@pytest.mark.parametrize("size", [PACK_FROM_BYTES, 2 * PACK_IN_THREAD_BYTES])
@pytest.mark.parametrize("accepted", ["gzip", "br, gzip;q=0.5", "*", "GZIP"])
async def test_a_long_answer_is_packed(web: Web, accepted: str, size: int) -> None:
    await web.node.create_topic("t")
    await web.node.produce("t", b"x" * size)
    headers, body = await fetch(web, "/v1/topics/t/records", accepted)
    assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert len(body) < size / 2
    assert json.loads(gzip.decompress(body))["records"][0]["value"] == "x" * size
    assert int(headers["Content-Length"]) == len(body)


@pytest.mark.parametrize("accepted", ["", "identity", "gzip;q=0", "gzip; q=0.0", "br"])
async def test_an_answer_is_plain_for_others(web: Web, accepted: str) -> None:
    headers, body = await fetch(web, "/v1/openapi.json", accepted)
    assert "Content-Encoding" not in headers
    assert json.loads(body)["openapi"]


async def test_a_short_answer_and_metrics(web: Web) -> None:
    headers, _ = await fetch(web, "/v1/topics", "gzip")
    assert "Content-Encoding" not in headers
    headers, body = await fetch(web, "/metrics", "gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert b"pqbroker_connections" in gzip.decompress(body)


_PATHS = ("/health", "/ready", "/v1/topics", "/v1/topics/none", "/nowhere", "/v1/topics?limit=x")


@pytest.mark.parametrize("path", _PATHS)
async def test_an_answer_ends_with_a_newline(web: Web, path: str) -> None:
    _, body = await fetch(web, path, "")
    assert body.endswith(b"}\n")
