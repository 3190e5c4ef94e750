"""Keys of an authorization server, read from an address or a file: at the start, from time to time, and when a token
names one that is unknown. Reads run beside the loop, one at a time, and seldom: who sends unknown keys causes no more.
"""

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPErrorProcessor, HTTPSHandler, Request, build_opener

from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.services.logins.bearer_rules import TokenRules
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.oauth import JWKS_URL
from pqbroker.security.errors import SecurityError
from pqbroker.security.web_tokens import WebKey, read_web_keys

READ_S: Final = 10.0
"""Seconds that a read of keys takes at most."""
KEY_SET_BYTES_MAX: Final = 1 << 20
"""Bytes of a key set at most."""
_PART_BYTES: Final = 1 << 16

seldom = SeldomLog(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class KeyAddress:
    """Address of a key set, and when it is read again, in ms."""

    url: str
    refresh_ms: int
    backoff_ms: int
    backoff_ms_max: int
    context: ssl.SSLContext | None
    """Certificates that an https address is checked by; None: those of the system."""

    @property
    def is_file(self) -> bool:
        return self.url.lower().startswith("file:")


class WebKeys:
    """The keys of one address. They stay those of before while it cannot be read."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, address: KeyAddress, read: Callable[[KeyAddress], bytes] | None = None
    ) -> None:
        """`read`: reads the address, in a thread; SecurityError."""
        self._loop = loop
        self._address = address
        self._read = read or read_address
        self._reading: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._vain_reads = 0
        """Reads, one after the other, that failed or brought nothing new."""
        self._next_read_s = 0.0
        """Loop time from which on an unknown key has the keys read again."""
        self._is_closed = False
        self.known: tuple[WebKey, ...] = ()
        self.failure = ""
        """Cause of the failure of the last read; empty: it did not fail."""
        self.reads = 0

    async def load(self) -> None:
        """Read the keys for the first time. ConfigError for a file that has none; an address is read again later."""
        await self._begin()
        if self.failure and self._address.is_file:
            self.close()
            raise ConfigError(f"{JWKS_URL} is {self._address.url}: {self.failure}")

    async def look_for_unknown(self) -> None:
        """Return when the keys are as new as they may be: a token has one that is unknown."""
        if self._reading is None and self._loop.time() < self._next_read_s:
            return
        await asyncio.shield(self._reading or self._begin())

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> "asyncio.Future[None]":
        """Begin a read, in a thread that the end of the process does not wait for."""
        self._reading = done = self._loop.create_future()
        self.reads += 1
        threading.Thread(target=self._work, args=(done,), name="web-keys", daemon=True).start()
        return done

    def _work(self, done: "asyncio.Future[None]") -> None:
        keys: tuple[WebKey, ...] = ()
        failure = ""
        try:
            keys = read_web_keys(self._read(self._address))
        except SecurityError as error:
            failure = str(error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, keys, failure, done)

    def _take(self, keys: tuple[WebKey, ...], failure: str, done: "asyncio.Future[None]") -> None:
        self._reading, self.failure = None, failure
        is_news = bool(keys) and keys != self.known
        self._vain_reads = 0 if is_news else self._vain_reads + 1
        if failure:
            effect = "those of before count" if self.known else "no token is taken until they are read"
            seldom.warning("keys of tokens are unreadable at %s: %s; %s", self._address.url, failure, effect)
        else:
            self.known = keys
        wait_ms = backoff_ms(self._vain_reads, self._address)
        self._next_read_s = self._loop.time() + wait_ms / 1000
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_closed:
            next_ms = wait_ms if failure else self._address.refresh_ms
            self._timer = self._loop.call_later(next_ms / 1000, self._begin_due)
        if not done.done():
            done.set_result(None)

    def _begin_due(self) -> None:
        if self._reading is None:
            self._begin()


class ListenerKeys(NamedTuple):
    """Keys by which a listener checks tokens, and what these must claim."""

    keys: WebKeys
    rules: TokenRules


def backoff_ms(vain_reads: int, address: KeyAddress) -> int:
    """Return the ms from one read to the next that a token may cause."""
    doublings = min(max(vain_reads - 1, 0), 30)
    return min(address.backoff_ms << doublings, max(address.backoff_ms_max, address.backoff_ms))


def check_url(url: str) -> None:
    """ConfigError for an address that keys must not come from."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return
    raise ConfigError(
        f"{JWKS_URL} is {url!r}; give https://HOST/PATH, http:// on 127.0.0.1 alone (who changes what passes there "
        "makes tokens), or file:///PATH"
    )


def read_address(address: KeyAddress) -> bytes:
    """Read a key set: a file, or what an address answers. SecurityError."""
    if address.is_file:
        path = Path(unquote(urlsplit(address.url).path))
        try:
            with path.open("rb") as file:
                return _bounded(file.read(KEY_SET_BYTES_MAX + 1))
        except OSError as error:
            raise SecurityError(f"cannot read {path}: {error.strerror}") from None
    try:
        return _bounded(_fetch(address))
    except URLError as error:
        raise SecurityError(f"it does not answer: {error.reason}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise SecurityError(f"it does not answer: {error}") from None


def _fetch(address: KeyAddress) -> bytes:
    """Return what an address answers, or as much as shows that it is too much. OSError, ValueError, HTTPException."""
    opener = build_opener(HTTPSHandler(context=address.context), _NoRedirects())
    ends_s, data = time.monotonic() + READ_S, b""
    with opener.open(Request(address.url, headers={"Accept": "application/json"}), timeout=READ_S) as answer:
        while len(data) <= KEY_SET_BYTES_MAX and (part := answer.read1(_PART_BYTES)):
            data += part
            if time.monotonic() > ends_s:
                raise TimeoutError(f"it took longer than {READ_S:.0f} s")
    return data


def _bounded(data: bytes) -> bytes:
    if len(data) > KEY_SET_BYTES_MAX:
        raise SecurityError(f"it has more than {KEY_SET_BYTES_MAX} bytes")
    return data


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _NoRedirects(HTTPErrorProcessor):
    """Takes 200 alone: a redirect may lead to an address that is not protected."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        if response.status != 200:
            raise OSError(f"status {response.status}")
        return response

    https_response = http_response
