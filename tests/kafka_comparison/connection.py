"""One blocking connection to a broker: requests of our declarations out, answers in, or what came in their place."""

import contextlib
import socket
import struct
from typing import Any, Final

from pqbroker.broker.kafka.served import APIS
from pqbroker.protocol.codec import decoder, encoder
from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.schema import is_flexible, message

CLIENT_ID: Final = "compared"
CLOSED: Final = "the connection is closed"
SILENT: Final = "no answer in time"
NOT_DECODED: Final = "an answer that its declaration does not decode"

_API_VERSIONS_KEY: Final = 18
_RESPONSES: Final = {api.key: api.response for api in APIS}
_TIMEOUT_S: Final = 8.0


class Connection:
    """A socket with its count of requests. What a broker does instead of an answer is returned as a text."""

    def __init__(self, address: str, source: str = "") -> None:
        """`source`: address that the broker shall see."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S, (source, 0) if source else None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._asked: list[tuple[type, int]] = []

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return its response, or CLOSED, SILENT or NOT_DECODED."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Any, version: int) -> None:
        """Send a request; `receive` takes its answer in turn."""
        declared = type(request)
        key = message(declared).api_key
        assert key is not None
        body = b"".join(map(bytes, encoder(declared, version)(request)))
        self._asked.append((_RESPONSES[key], version))
        self.send_frame(key, version, body)

    def send_frame(self, api_key: int, version: int, body: bytes) -> None:
        """Send a body of one's own under a request's header."""
        self._correlation_id += 1
        client_id = CLIENT_ID.encode()
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(client_id)) + client_id
        if is_flexible(api_key, version):
            header += b"\0"
        with contextlib.suppress(OSError):  # the answer's place tells that the connection is closed
            self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)

    def forget(self) -> None:
        """Expect no answer to the request sent last."""
        self._asked.pop()

    def receive(self) -> Any:
        """Return the answer to the oldest request without one."""
        declared, version = self._asked.pop(0)
        data = self.receive_frame()
        if isinstance(data, str):
            return data
        key = message(declared).api_key
        start = 5 if key != _API_VERSIONS_KEY and is_flexible(key or 0, version) else 4
        return decoded(declared, version, data[start:])

    def receive_frame(self) -> bytes | str:
        """Return the bytes of the next frame; CLOSED or SILENT."""
        try:
            size = self._read(4)
            return size if isinstance(size, str) else self._read(struct.unpack(">i", size)[0])
        except TimeoutError:
            return SILENT
        except OSError:
            return CLOSED

    def _read(self, size: int) -> bytes | str:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                return CLOSED
            data += piece
        return bytes(data)


def decoded(declared: type, version: int, body: bytes) -> Any:
    """Return the response in a body; NOT_DECODED where there is none, or more than one."""
    try:
        return decoder(declared, version)(memoryview(body))
    except (ProtocolError, ValueError):
        return NOT_DECODED
