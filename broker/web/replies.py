"""Documents as HTTP answers, packed for clients that accept it."""

import asyncio
import gzip
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

SLICE = 100
"""Items of a list that are written as JSON at one go: one may have a hundred fields."""
PACK_FROM_BYTES = 1024
PACK_IN_THREAD_BYTES = 16 << 10
"""Bodies from this size on are packed in a thread: 16 KiB take a fraction of a millisecond."""
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
_PACK = partial(gzip.compress, compresslevel=1, mtime=0)


def reply(document: Any, status: int, headers: dict[str, str] | None = None) -> web.Response:
    """Return an answer with a document, as `write_json` writes it."""
    return reply_written(write_json(document), status, headers)


def reply_written(body: bytes, status: int, headers: dict[str, str] | None = None) -> web.Response:
    """Return an answer whose JSON is written already."""
    return web.Response(body=body, status=status, headers=headers, content_type="application/json", charset="utf-8")


def write_json(document: Any) -> bytes:
    """Return a document as JSON with a newline behind it. Half of a surrogate pair, which a request can name and UTF-8
    cannot, goes back as JSON's escape for it."""
    text = "".join(_in_slices(document)) if has_long_list(document) else _encode(document)
    return (text + "\n").encode(errors="backslashreplace")


def as_line(document: Any) -> str:
    """Return a document as JSON with a newline behind it: a terminal's prompt begins on a line of its own."""
    return json.dumps(document) + "\n"


def has_long_list(document: Any) -> bool:
    """Return True if a document has a list that is longer than a slice, so that a thread should write it."""
    if isinstance(document, dict):
        for value in document.values():
            if isinstance(value, list) and len(value) > SLICE:
                return True
    return False


def _in_slices(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a document as JSON. A long list is written in slices, between which its thread lets the loop run."""
    mark = "{"
    for name, value in document.items():
        yield f"{mark}{json.dumps(name)}: "
        mark = ", "
        if not isinstance(value, list) or not value:
            yield _encode(value)
            continue
        for start in range(0, len(value), SLICE):
            yield ("[" if start == 0 else ", ") + _encode(value[start : start + SLICE])[1:-1]
        yield "]"
    yield "}"


async def pack(answer: web.StreamResponse, accepted: str) -> None:
    """Pack the body where it is long enough and the client accepts gzip (`accepted`: its Accept-Encoding)."""
    body = answer.body if isinstance(answer, web.Response) else None
    if not isinstance(body, bytes) or len(body) < PACK_FROM_BYTES:
        return
    answer.headers["Vary"] = "Accept-Encoding"
    if not _accepts_gzip(accepted):
        return
    assert isinstance(answer, web.Response)
    answer.body = await asyncio.to_thread(_PACK, body) if len(body) >= PACK_IN_THREAD_BYTES else _PACK(body)
    answer.headers["Content-Encoding"] = "gzip"


def _accepts_gzip(accepted: str) -> bool:
    for item in accepted.lower().split(","):
        name, _, weight = (part.strip() for part in item.partition(";"))
        if name in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
