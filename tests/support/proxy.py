"""A TCP proxy in front of a broker that can lose an acknowledgement: it drops one answer and closes the connection.

The broker must advertise the proxy's address, else clients go round it.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

PRODUCE = 0
_PIECE_BYTES = 1 << 16


class LosingProxy:
    """A context manager; listens from its start on, and forwards to `upstream` once that is set."""

    def __init__(self) -> None:
        self.upstream = ""
        """HOST:PORT of the broker."""
        self.lost = threading.Event()
        """Set once an answer was lost."""
        self._to_lose: int | None = None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        """HOST:PORT that clients connect to."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def lose_next(self, api_key: int) -> None:
        """Drop the next answer to a request of this kind, and close the connection it would have gone down."""
        with self._lock:
            self._to_lose = api_key

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _close(self._listener)
        with self._lock:
            for connection in self._open:
                _close(connection)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                host, _, port = self.upstream.rpartition(":")
                server = socket.create_connection((host, int(port)))
                with self._lock:
                    self._open += [client, server]
                kinds: dict[int, int] = {}
                self._start(self._forward_requests, client, server, kinds)
                self._start(self._forward_answers, server, client, kinds)

    def _forward_requests(self, client: socket.socket, server: socket.socket, kinds: dict[int, int]) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(client):
                api_key, _version, correlation_id = struct.unpack_from(">hhi", frame, 4)
                kinds[correlation_id] = api_key
                server.sendall(frame)
        _close(server)

    def _forward_answers(self, server: socket.socket, client: socket.socket, kinds: dict[int, int]) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(server):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                if self._loses(kinds.pop(correlation_id)):
                    self.lost.set()
                    break
                client.sendall(frame)
        _close(client)
        _close(server)

    def _loses(self, api_key: int) -> bool:
        with self._lock:
            if api_key != self._to_lose:
                return False
            self._to_lose = None
            return True

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


def _frame(connection: socket.socket) -> bytes:
    """One request or answer with its length before it; empty when the peer has closed."""
    head = _receive(connection, 4)
    return head + _receive(connection, struct.unpack(">i", head)[0]) if head else b""


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), _PIECE_BYTES))
        if not piece:
            return b""
        data += piece
    return bytes(data)


def _close(connection: socket.socket) -> None:
    """Wakes whoever waits on the socket, too."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
