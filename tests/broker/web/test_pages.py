"""The console's files over HTTP: who gets the page, what may run in it, and when it is sent again."""

from collections.abc import Mapping

import aiohttp

from pqbroker.broker.web.console.files import console_files
from tests.broker.web.conftest import Web

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def get(web: Web, path: str, method: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    async with aiohttp.ClientSession() as session:
        sent = {name.replace("_", "-"): text for name, text in headers.items()}
        async with session.request(method, web.url(path), headers=sent) as answer:
            return answer.status, answer.headers, await answer.read()


async def test_browsers_get_the_page_at_the_root_and_others_what_they_got(web: Web) -> None:
    status, headers, body = await get(web, "/", **BROWSER)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body == console_files()["index.html"].body
    nowhere = (await get(web, "/nowhere"))[0]
    for asked in ((await get(web, "/")), (await get(web, "/", "POST", **BROWSER))):
        assert asked[0] == nowhere == 404
        assert b'"code": "NOT_FOUND"' in asked[2] or b'"error"' in asked[2]


async def test_every_file_comes_with_its_type_its_tag_and_the_policy(web: Web) -> None:
    for path, file in console_files().items():
        status, headers, body = await get(web, f"/console/{path}")
        assert (status, body) == (200, file.body)
        assert headers["Content-Type"] == f"{file.content_type}; charset=utf-8"
        assert headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["Content-Security-Policy"]
        status, _, body = await get(web, f"/console/{path}", If_None_Match=headers["ETag"])
        assert (status, body) == (304, b"")


async def test_nothing_but_the_console_is_served(web: Web) -> None:
    for path in ("files.py", "../files.py", "%2e%2e/files.py", "vendor", "vendor/../../files.py", "%00"):
        assert (await get(web, f"/console/{path}"))[0] in (400, 404)


async def test_another_host_gets_no_page(web: Web) -> None:
    assert (await get(web, "/", **BROWSER, Host="evil.example"))[0] == 421
