"""A client of a few lines: requests to frames, frames to responses, over a socket or none at all."""

import asyncio
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.served import APIS
from pqbroker.protocol.codec import decoder, encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.frames import frame
from pqbroker.protocol.schema import is_flexible

T = TypeVar("T")
BY_REQUEST = {api.request: api for api in APIS}
_HEADER = struct.Struct(">hhih")


def request_frame(request: Any, version: int, correlation_id: int = 1, client_id: bytes = b"test") -> bytes:
    """The bytes of a request, length and header included."""
    declared: Any = type(request)
    key, end, encode = _asking(declared, version)
    header = b"".join((_HEADER.pack(key, version, correlation_id, len(client_id)), client_id, end))
    return b"".join(map(bytes, frame([header, *encode(request)])))


def read_response(api: Api, version: int, body: bytes) -> tuple[int, Any]:
    """Correlation id and response of a frame without its length."""
    declared: Any = api.request
    start, decode = _answering(declared, version)
    return int.from_bytes(body[:4]), decode(memoryview(body)[start:])


@cache
def _asking(declared: type, version: int) -> tuple[int, bytes, Callable[[Any], list[Any]]]:
    """Return an API's key, what stands behind the client's id, and what encodes its requests."""
    key = BY_REQUEST[declared].key
    return key, b"\0" if is_flexible(key, version) else b"", encoder(declared, version)


@cache
def _answering(declared: type, version: int) -> tuple[int, Callable[[Any], Any]]:
    """Return where an answer begins behind its header, and what decodes it."""
    api = BY_REQUEST[declared]
    return 5 if is_flexible(api.key, version) and api.key != 18 else 4, decoder(api.response, version)


def error_codes(response: Any) -> Iterator[ErrorCode]:
    """Every error code in a response, at any depth."""
    if isinstance(response, list):
        for each in response:
            yield from error_codes(each)
    elif is_dataclass(response):
        for field in fields(response):
            value = getattr(response, field.name)
            if field.name.endswith("error_code") and value:
                yield value
            else:
                yield from error_codes(value)


def split_frames(data: bytes) -> list[bytes]:
    frames = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames


class Client:
    """One connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._asked: list[tuple[int, Api, int]] = []
        self.codes: set[ErrorCode] = set()
        """The error codes that came."""

    @classmethod
    async def connect(cls, host: str, port: int, source: str | None = None) -> "Client":
        """`source`: address that the broker shall see."""
        return cls(*await asyncio.open_connection(host, port, local_addr=None if source is None else (source, 0)))

    @property
    def address(self) -> str:
        """Its own end's HOST:PORT."""
        host, port = self._writer.get_extra_info("sockname")
        return f"{host}:{port}"

    def send(self, request: Any, version: int | None = None) -> None:
        """Send a request, in its latest version unless told otherwise; its response is expected in turn."""
        api = BY_REQUEST[type(request)]
        version = api.version_max if version is None else version
        self._correlation_id += 1
        self._asked.append((self._correlation_id, api, version))
        self._writer.write(request_frame(request, version, self._correlation_id))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    def expect_nothing(self) -> None:
        """The request sent last gets no response."""
        self._asked.pop()

    async def receive(self) -> Any:
        """The next response, which must be that of the oldest request unanswered."""
        correlation_id, api, version = self._asked.pop(0)
        got, response = read_response(api, version, await self.receive_bytes())
        assert got == correlation_id
        self.codes.update(error_codes(response))
        return response

    async def receive_bytes(self) -> bytes:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def ask(self, request: Any, version: int | None = None) -> Any:
        self.send(request, version)
        return await self.receive()

    async def is_closed_by_peer(self) -> bool:
        """Wait for the peer's FIN; False when bytes come instead."""
        return await self._reader.read(1) == b""

    def abort(self) -> None:
        """Close at once, answered or not: what a killed process leaves."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
