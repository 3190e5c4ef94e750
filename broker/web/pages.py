"""The console over HTTP: its page at `/` for browsers, its files below `/console/`, revalidated by their tags."""

import asyncio

from aiohttp import ETag, web

from pqbroker.broker.web.console.files import PAGE, POLICY, console_files
from pqbroker.broker.web.door import slot_of
from pqbroker.broker.web.routing.problems import too_much_at_once

_READING = frozenset(("GET", "HEAD"))
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_console(application: web.Application) -> None:
    """Other clients than browsers get at `/` what they get at any path that is none."""
    application.router.add_route("*", "/", _page)
    application.router.add_get("/console/{path:.+}", _file)


async def _page(request: web.Request) -> web.Response:
    if request.method not in _READING or not _wants_page(request.headers.get("Accept", "")):
        raise web.HTTPNotFound
    return await _answer(request, PAGE)


async def _file(request: web.Request) -> web.Response:
    return await _answer(request, request.match_info["path"])


async def _answer(request: web.Request, path: str) -> web.Response:
    found = (await asyncio.to_thread(console_files)).get(path)
    if found is None:
        raise web.HTTPNotFound
    known = request.if_none_match or ()
    if any(tag.value in (found.tag, "*") for tag in known):
        answer = web.Response(status=304, headers=_HEADERS)
    elif slot_of(request).hold(len(found.body)):
        answer = web.Response(body=found.body, headers=_HEADERS, content_type=found.content_type, charset="utf-8")
    else:
        raise too_much_at_once("answer")
    answer.etag = ETag(found.tag, is_weak=True)  # packed or not, it is the same file
    return answer


def _wants_page(accepted: str) -> bool:
    return any(item.partition(";")[0].strip().lower() == "text/html" for item in accepted.split(","))
