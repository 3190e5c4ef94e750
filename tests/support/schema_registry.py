"""A registry in this process, which speaks Confluent's API as far as it is asked here, and misbehaves on cue."""

import contextlib
import json
import struct
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class TestRegistry:
    """Schemas by number and by subject. `authorization`: the header that requests must have; `paths`: what they asked
    for."""

    __test__ = False

    def __init__(self) -> None:
        self.authorization: str | None = None
        self.is_down = False
        self.paths: list[str] = []
        self.address = ""
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}

    def add(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """Register a schema, which is a text or a document. Return its number."""
        number = len(self._schemas) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            found["schemaType"] = kind
        if references:
            found["references"] = [dict(zip(("name", "subject", "version"), each, strict=True)) for each in references]
        self._schemas[number] = found
        self._subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> tuple[int, Any]:
        """Return the status and the document for a path."""
        self.paths.append(path)
        if self.is_down:
            return 503, {"error_code": 50302, "message": "down"}
        match path.removeprefix("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self._schemas:
                return 200, self._schemas[int(number)]
            case ["subjects", subject, "versions", version] if unquote(subject) in self._subjects:
                numbers = self._subjects[unquote(subject)]
                found = numbers[-1] if version == "latest" else numbers[int(version) - 1]
                return 200, {"subject": unquote(subject), "id": found, "version": 1, **self._schemas[found]}
        return 404, {"error_code": 40403, "message": "not found"}


@contextlib.contextmanager
def serving() -> Iterator[TestRegistry]:
    """A registry that answers at its `address`."""
    registry = TestRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_wrong = registry.authorization not in (None, self.headers["Authorization"])
            status, document = (401, {"message": "who?"}) if is_wrong else registry.answer(self.path)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def framed(number: int, body: bytes) -> bytes:
    """Return a value as a producer with a registry writes it."""
    return b"\0" + struct.pack(">I", number) + body
