"""Requests to a registry: the schema of a number, of a subject's latest version, and of a reference.

It blocks, for at most `DecodingLimits.timeout_ms` a schema, and reads no more than a schema may have. It follows no
redirect: credentials are for the named registry alone.
"""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from pqbroker.registry.limits import REFERENCES_MAX, DecodingLimits
from pqbroker.registry.named import NamedRegistry
from pqbroker.registry.properties_file import load_access
from pqbroker.registry.schema_documents import check_levels
from pqbroker.registry.undecodable import INVALID_SCHEMA, LARGE_SCHEMA, UNAVAILABLE, UNKNOWN, Undecodable
from pqbroker.security.errors import SecurityError

_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_HEAD_BYTES: Final = 64 << 10
"""Bytes of an answer beside the schema itself."""
_PIECE_BYTES: Final = 64 << 10
_LEVELS_MAX: Final = 64
"""Levels of an answer; a schema lies in it as a text."""


class SchemaKind(Enum):
    """Formats of schemas, by the registry's words."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class StoredSchema(NamedTuple):
    """A schema with those that it refers to, in an order in which each follows what it refers to itself."""

    schema_id: int
    kind: str
    text: str
    references: Mapping[str, str]
    """Texts by the names that schemas use for them."""


class RegistryClient:
    """Asks one registry."""

    def __init__(self, registry: NamedRegistry, limits: DecodingLimits) -> None:
        self._registry = registry
        self._limits = limits

    def schema(self, schema_id: int) -> StoredSchema:
        """The schema of a number. Undecodable REGISTRY_UNAVAILABLE, SCHEMA_UNKNOWN, …"""
        return _Fetching(self._registry, self._limits).stored(f"/schemas/ids/{schema_id}", schema_id)

    def latest(self, subject: str) -> StoredSchema:
        """The schema of a subject's latest version. Undecodable as above."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        return _Fetching(self._registry, self._limits).stored(path, None)


class _Fetching:
    """The requests for one schema."""

    def __init__(self, registry: NamedRegistry, limits: DecodingLimits) -> None:
        self._registry = registry
        self._limits = limits
        self._deadline_s = time.monotonic() + limits.timeout_ms / 1000
        self._bytes_left = limits.schema_bytes_max
        self._texts: dict[str, str] = {}
        self._seen: set[tuple[str, int]] = set()

    def stored(self, path: str, schema_id: int | None) -> StoredSchema:
        answer = self._get(path)
        found = answer.get("id") if schema_id is None else schema_id
        if not isinstance(found, int):
            raise self._unavailable(f"its answer to {path} has no id")
        kind = answer.get("schemaType") or SchemaKind.AVRO.value
        text = self._text(answer, path)
        self._follow(answer.get("references") or (), 0)
        return StoredSchema(found, str(kind), text, self._texts)

    def _follow(self, references: Any, level: int) -> None:
        """Fetch references, those of a reference before itself."""
        if not isinstance(references, list | tuple):
            raise Undecodable(INVALID_SCHEMA, "the references of a schema are no array")
        for each in references:
            name, subject, version = _reference(each)
            if (subject, version) in self._seen:
                continue
            self._seen.add((subject, version))
            if len(self._seen) > REFERENCES_MAX or level >= REFERENCES_MAX:
                text = f"the schema refers to more than {REFERENCES_MAX} others"
                raise Undecodable(LARGE_SCHEMA, text)
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            answer = self._get(path)
            text = self._text(answer, path)
            self._follow(answer.get("references") or (), level + 1)
            self._texts[name] = text

    def _text(self, answer: Mapping[str, Any], path: str) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._unavailable(f"its answer to {path} has no schema")
        self._bytes_left -= len(text.encode(errors="surrogatepass"))
        if self._bytes_left < 0:
            raise self._too_large()
        return text

    def _get(self, path: str) -> Mapping[str, Any]:
        """Return the JSON object of an answer."""
        try:
            connection, prefix, headers = self._connection()
        except (SecurityError, ValueError) as error:
            raise self._unavailable(str(error)) from None
        try:
            with contextlib.closing(connection):
                connection.connect()
                status, answer = self._exchange(connection, prefix + path, headers)
        except (OSError, HTTPException, ValueError) as error:
            raise self._unavailable(self._cause(error)) from None
        if status == 404:
            raise Undecodable(UNKNOWN, f"the registry {self._registry.name} has no {path}")
        if status != 200 or not isinstance(answer, dict):
            raise self._unavailable(f"it answered {status} to {path}")
        return answer

    def _connection(self) -> tuple[HTTPConnection, str, Mapping[str, str]]:
        """Return a connection that is not open yet, the path of the address, and the headers."""
        parts = urlsplit(self._registry.address)
        if not self._registry.address:
            raise ValueError("no registry of this name stands in pqbroker.registries")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"its address {self._registry.address!r} has not the form http[s]://HOST:PORT")
        access = load_access(self._registry.config_file)
        headers = {"Accept": _ACCEPT}
        if access.authorization:
            headers["Authorization"] = access.authorization
        left_s, prefix = self._left_s(), parts.path.rstrip("/")
        if parts.scheme == "https":
            context = access.context()
            return HTTPSConnection(parts.hostname, parts.port, timeout=left_s, context=context), prefix, headers
        return HTTPConnection(parts.hostname, parts.port, timeout=left_s), prefix, headers

    def _exchange(self, connection: HTTPConnection, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        """Return the status and the JSON of an answer, which ends at the deadline even where it comes byte by byte."""
        ending = threading.Timer(self._left_s(), _shut, (connection.sock,))
        ending.daemon = True
        ending.start()
        try:
            connection.request("GET", path, headers=headers)
            with connection.getresponse() as response:
                return response.status, _parse(self._body(response))
        finally:
            ending.cancel()

    def _body(self, response: HTTPResponse) -> bytes:
        most = 2 * self._limits.schema_bytes_max + _HEAD_BYTES
        body = bytearray()
        while piece := response.read1(_PIECE_BYTES):
            body += piece
            if len(body) > most:
                raise self._too_large()
        return bytes(body)

    def _left_s(self) -> float:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _cause(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) or time.monotonic() >= self._deadline_s:
            return f"it did not answer within pqbroker.registry.timeout.ms = {self._limits.timeout_ms}"
        if isinstance(error, ssl.SSLError):
            return f"TLS with it failed: {error.reason or error}"
        if isinstance(error, OSError):
            return error.strerror or type(error).__name__
        return "its answer is no JSON" if isinstance(error, json.JSONDecodeError) else "its answer is no HTTP with JSON"

    def _unavailable(self, cause: str) -> Undecodable:
        return Undecodable(UNAVAILABLE, f"the registry {self._registry.name}: {cause}")

    def _too_large(self) -> Undecodable:
        most = self._limits.schema_bytes_max
        text = f"the schema, with those that it refers to, has more than pqbroker.registry.schema.bytes.max = {most}"
        return Undecodable(LARGE_SCHEMA, f"{text} bytes")


def _shut(connected: socket.socket) -> None:
    """End an exchange whose time is over: a peer that sends byte after byte keeps within the time of each."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _parse(body: bytes) -> Any:
    """Return a JSON document of few levels; ValueError."""
    text = body.decode()
    try:
        check_levels(text, _LEVELS_MAX)
    except Undecodable as deep:
        raise ValueError(str(deep)) from None
    return json.loads(text)


def _reference(each: Any) -> tuple[str, str, int]:
    if isinstance(each, Mapping):
        name, subject, version = each.get("name"), each.get("subject"), each.get("version")
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int):
            return name, subject, version
    raise Undecodable(INVALID_SCHEMA, "a reference of the schema has not a name, a subject and a version")
