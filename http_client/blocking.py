"""The transport of the synchronous client: one connection, kept between calls."""

import socket
import time
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final, TypeVar

from pqbroker.http_client.addresses import HttpAddress
from pqbroker.http_client.errors import ClientError, failure_of, no_broker, timed_out
from pqbroker.http_client.exchange import Answer, Request, Steps, head_of

T = TypeVar("T")
_BESIDE_HEAD_BYTES: Final = 64 << 10
"""Bytes of a body that go with its head."""


class BlockingTransport:
    """A transport for one thread at a time."""

    def __init__(self, address: HttpAddress, timeout_s: float) -> None:
        self._address = str(address)
        self._place = address
        self._timeout_s = timeout_s
        self._connection = HTTPConnection(address.host, address.port, timeout=timeout_s)
        if address.context is not None:
            self._connection = HTTPSConnection(
                address.host, address.port, timeout=timeout_s, context=address.context
            )

    def perform(self, steps: Steps[T]) -> T:
        """Return the result of a call. Raises ClientError."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._exchange(request)
                except ClientError as failure:
                    request = steps.throw(failure)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, request: Request) -> Answer:
        if request.delay_s:
            time.sleep(request.delay_s)
        head, body = head_of(request, self._place, is_last=False), request.body or b""
        connected = self._connect()
        try:
            connected.sendall(head + body[:_BESIDE_HEAD_BYTES])
            if len(body) > _BESIDE_HEAD_BYTES:
                connected.sendall(memoryview(body)[_BESIDE_HEAD_BYTES:])
            with closing(HTTPResponse(connected, method=request.method)) as response:
                response.begin()
                answer = Answer(self._address, response.status, response.read())
            if response.will_close:
                self._connection.close()
            return answer
        except BaseException as error:
            self._connection.close()  # the rest of an answer would be taken for the next one
            if not isinstance(error, OSError | HTTPException):
                raise
            if isinstance(error, TimeoutError):
                raise timed_out(self._address, self._timeout_s) from None
            raise failure_of(self._address, error) from None

    def _connect(self) -> socket.socket:
        """A broker closes connections that rest; a request that is sent on one is lost, or is performed without a word.
        """
        connected: socket.socket | None = self._connection.sock
        if connected is None or not _is_open(connected, self._timeout_s):
            self._connection.close()
            try:
                self._connection.connect()
            except (OSError, UnicodeError) as error:
                raise no_broker(self._address, error) from None
            connected = self._connection.sock
        return connected


def _is_open(connected: socket.socket, timeout_s: float) -> bool:
    """Return True if the other side has neither closed nor sent anything unasked."""
    is_encrypted = hasattr(connected, "context")
    connected.setblocking(False)
    try:
        # What comes unasked under TLS and is no data, such as new keys, is read by the way; nothing can be peeked at.
        connected.recv(1, 0 if is_encrypted else socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError as error:
        return is_encrypted and _awaits_more(error)
    finally:
        connected.settimeout(timeout_s)
    return False


def _awaits_more(error: OSError) -> bool:
    """Return True for TLS's way to say that nothing has come."""
    import ssl

    return isinstance(error, ssl.SSLWantReadError)
