"""The transport of the asyncio client: a connection for each request, few at once."""

import asyncio
import io
from http.client import HTTPException, HTTPResponse
from typing import Any, TypeVar

from pqbroker.http_client.addresses import HttpAddress
from pqbroker.http_client.errors import ClientError, failure_of, no_broker, timed_out
from pqbroker.http_client.exchange import Answer, Request, Steps, head_of

T = TypeVar("T")
CONNECTIONS_MAX = 16
"""More requests at once wait: the broker has a limit for all its clients."""
PARSED_IN_THREAD_BYTES = 1 << 20
_READ_BYTES = 1 << 20


class AsyncioTransport:
    """Several calls may be under way at once."""

    def __init__(self, address: HttpAddress, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)

    async def perform(self, steps: Steps[T]) -> T:
        """Return the result of a call. Raises ClientError."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._exchange(request)
                except ClientError as failure:
                    request = steps.throw(failure)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _exchange(self, request: Request) -> Answer:
        if request.delay_s:
            await asyncio.sleep(request.delay_s)
        async with self._places:
            try:
                async with asyncio.timeout(self._timeout_s):
                    data = await self._received(request)
            except TimeoutError:
                raise timed_out(str(self._address), self._timeout_s) from None
        if len(data) < PARSED_IN_THREAD_BYTES:
            return self._parse(data)
        return await asyncio.to_thread(self._parse, data)

    async def _received(self, request: Request) -> bytes:
        """All that comes until the broker closes the connection."""
        head = head_of(request, self._address, is_last=True)
        try:
            reader, writer = await asyncio.open_connection(
                self._address.host, self._address.port, limit=_READ_BYTES, ssl=self._address.context
            )
        except (OSError, UnicodeError) as error:
            raise no_broker(str(self._address), error) from None
        try:
            writer.writelines([head, request.body or b""])
            await writer.drain()
            return await reader.read()
        except OSError as error:
            raise failure_of(str(self._address), error) from None
        finally:
            writer.close()

    def _parse(self, data: bytes) -> Answer:
        given: Any = _Received(data)
        response = HTTPResponse(given)
        try:
            response.begin()
            return Answer(str(self._address), response.status, response.read())
        except (OSError, HTTPException) as error:
            raise failure_of(str(self._address), error) from None


class _Received:
    """The bytes that came over a connection, as Python's own parser of HTTP takes them."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
