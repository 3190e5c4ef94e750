"""A headless Chromium, driven over its DevTools protocol: what pages show, what they ask for and complain of."""

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import wait_until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_START_S = 60.0
_LOOK_S = 0.05


class BrowserError(Exception):
    """The browser did not do what it was told."""


class Page:
    """One tab. `complaints`: errors of its console and scripts; `asked`: every address that it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        self.asked: list[str] = []

    async def send(self, method: str, **parameters: Any) -> Any:
        """What a method of the protocol returns."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters, "sessionId": self._session}
        await self._socket.send_str(json.dumps(message))
        return await self._answers[number]

    async def open(self, address: str) -> None:
        await self.send("Page.navigate", url=address)

    async def look(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    async def text(self) -> str:
        """What a person reads in the page."""
        return str(await self.look("document.querySelector('#app')?.innerText ?? ''"))

    async def wait_for(self, *words: str, within_s: float = 20.0) -> str:
        """The page's text once it has all these words; AssertionError, which shows it, when that does not come."""
        text = ""
        try:
            async with asyncio.timeout(within_s):
                while not all(word in text for word in words):
                    text = await self.text()
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise AssertionError(f"no {words} in:\n{text}\nit complained of {self.complaints}") from None
        return text

    async def wait_until(self, fact: str, within_s: float = 20.0) -> None:
        """Wait until an expression over the page's text (`innerText`) holds; AssertionError, which shows the text."""
        expression = f"((innerText) => {fact})(document.querySelector('#app')?.innerText ?? '')"
        try:
            async with asyncio.timeout(within_s):
                holds = False
                while not holds:
                    holds = await self.look(expression)
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise AssertionError(f"not {fact} in:\n{await self.text()}") from None

    async def click(self, label: str) -> None:
        """Press the first button that says so, once it is on the page."""
        found = f"[...document.querySelectorAll('button')].find(one => one.innerText.startsWith({json.dumps(label)}))"
        await self.wait_until(f"{found} !== undefined")
        await self.look(f"{found}.click()")

    async def type(self, selector: str, text: str) -> None:
        """Put text into a field, once it is on the page."""
        await self.wait_until(f"document.querySelector({json.dumps(selector)}) !== null")
        await self.look(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)}); field.value = {json.dumps(text)};"
            "field.dispatchEvent(new Event('input', {bubbles: true}));"
            "field.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    async def resize(self, width: int, height: int) -> None:
        """Make the window as wide and high as this, in pixels."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def prefer(self, scheme: str) -> None:
        """Prefer the colours `light` or `dark`."""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self, file: Path, width: int, height: int, *, is_dark: bool = False) -> None:
        """A PNG of what is seen in a window of this size."""
        await self.prefer("dark" if is_dark else "light")
        await self.resize(width, height)
        await asyncio.sleep(0.5)
        shot = await self.send("Page.captureScreenshot", format="png")
        await asyncio.to_thread(file.write_bytes, base64.b64decode(shot["data"]))

    def take(self, message: dict[str, Any]) -> None:
        """An answer or an event of this tab."""
        if "id" in message:
            answer = self._answers.pop(message["id"])
            if not answer.done():
                if "error" in message:
                    answer.set_exception(BrowserError(str(message["error"])))
                else:
                    answer.set_result(message["result"])
        elif message["method"] == "Network.requestWillBeSent":
            self.asked.append(message["params"]["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(str(message["params"]["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.complaints.append(str(message["params"]["entry"]))
        elif message["method"] == "Runtime.consoleAPICalled" and message["params"]["type"] in ("error", "warning"):
            self.complaints.append(str(message["params"]["args"]))


class Browser:
    """Opens tabs."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._pages: dict[str, Page] = {}
        self._numbers = itertools.count(-1, -1)
        self._answers: dict[int, asyncio.Future[Any]] = {}

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """A tab of its own, with an empty memory of its own."""
        context = await self._send("Target.createBrowserContext")
        target = await self._send(
            "Target.createTarget",
            url="about:blank",
            browserContextId=context["browserContextId"],
            width=1280,
            height=900,
        )
        session = (await self._send("Target.attachToTarget", targetId=target["targetId"], flatten=True))["sessionId"]
        page = self._pages[session] = Page(self._socket, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.send(f"{domain}.enable")
        yield page
        await self._send("Target.disposeBrowserContext", browserContextId=context["browserContextId"])
        del self._pages[session]

    async def _send(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"id": number, "method": method, "params": parameters}))
        return await self._answers[number]

    async def listen(self) -> None:
        """Hand every message to whom it is for, until the browser ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            if page := self._pages.get(said.get("sessionId", "")):
                page.take(said)
            elif "id" in said:
                answer = self._answers.pop(said["id"])
                if "error" in said:
                    answer.set_exception(BrowserError(str(said["error"])))
                else:
                    answer.set_result(said["result"])


@contextmanager
def started() -> Iterator[str]:
    """The address of a Chromium of its own, with a profile of its own, which goes at the end."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    assert program is not None, f"none of {', '.join(PROGRAMS)} is on the PATH; ./test installs it"
    with tempfile.TemporaryDirectory(prefix="pqbroker-chromium-", ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        command = [program, *options, "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield _address(process, Path(profile, "DevToolsActivePort"))
        finally:
            process.kill()
            process.wait()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Browser]:
    """A connection to a Chromium that was started."""
    async with aiohttp.ClientSession() as client, client.ws_connect(address, max_msg_size=0) as socket:
        found = Browser(socket)
        listening = asyncio.create_task(found.listen())
        yield found
        listening.cancel()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A Chromium of its own, for a program that needs one."""
    with started() as address:
        async with connected(address) as found:
            yield found


def _address(process: "subprocess.Popen[bytes]", file: Path) -> str:
    """Where it listens, as it says in a file."""
    wait_until(lambda: _read(file) or process.poll() is not None, "the browser listens", _START_S)
    if not (said := _read(file)):
        raise BrowserError(f"the browser ended with status {process.returncode}")
    port, path = said.split()
    return f"ws://127.0.0.1:{port}{path}"


def _read(file: Path) -> str:
    text = file.read_text() if file.exists() else ""
    return text if len(text.split()) == 2 else ""
