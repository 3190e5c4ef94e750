"""Requests and answers, and calls made of them: generators that yield a request and are sent its answer, or thrown a
ClientError, so that the blocking and the asyncio transport perform the same calls.
"""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pqbroker.http_client.addresses import HttpAddress
from pqbroker.http_client.errors import CONNECTION_LOST, ClientError, refusal

T = TypeVar("T")
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `is_repeatable`: performed twice it does no more than once, so that it may be sent again. `delay_s`:
    seconds to wait before it is sent."""

    method: str
    path: str
    body: bytes | None = None
    content_type: str = JSON
    is_repeatable: bool = False
    delay_s: float = 0.0


def head_of(request: Request, address: HttpAddress, *, is_last: bool) -> bytes:
    """Return the head of a request, to be sent with its body in one piece: two wake the broker twice. `is_last`: the
    broker closes the connection behind its answer. ClientError INVALID_HEAD, and as `HttpAddress.headers`."""
    lines = [f"{request.method} {request.path} HTTP/1.1", f"Host: {address}"]
    if is_last:
        lines.append("Connection: close")
    lines += [f"{name}: {text}" for name, text in address.headers.items()]
    if request.body is not None:
        lines += [f"Content-Type: {request.content_type}", f"Content-Length: {len(request.body)}"]
    if not all(map(str.isprintable, lines)):
        cure = "Leave it out: what is read from a file often ends with a line break."
        raise ClientError("INVALID_HEAD", "the token, or a name, has a line break or another control character", cure)
    return "\r\n".join([*lines, "", ""]).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a broker, refusals included. `address`: who gave it."""

    address: str
    status: int
    data: bytes


Steps = Generator[Request, Answer, T]
"""A call, and what it returns."""


def ask(request: Request) -> Steps[Answer]:
    """Send a request, and once more if the connection was lost and a second try is safe."""
    try:
        return (yield request)
    except ClientError as failure:
        if failure.code != CONNECTION_LOST or not request.is_repeatable:
            raise
    return (yield request)


def get(path: str) -> Steps[dict[str, Any]]:
    """The document at a path."""
    return read((yield from ask(Request("GET", path, is_repeatable=True))))


def post(path: str, body: Mapping[str, Any], *, is_repeatable: bool = False) -> Steps[dict[str, Any]]:
    """Send a command and return its outcome."""
    request = Request("POST", path, json.dumps(body).encode(), is_repeatable=is_repeatable)
    return read((yield from ask(request)))


def read(answer: Answer) -> dict[str, Any]:
    """The document of an answer; ClientError."""
    document = accepted(answer, _parsed(answer.data))
    if not isinstance(document, dict):
        raise refusal(answer.address, answer.status, None)
    return document


def accepted(answer: Answer, found: T) -> T:
    """Return what was found in an answer. Raises ClientError if it is a refusal."""
    if answer.status >= 300:
        raise refusal(answer.address, answer.status, _parsed(answer.data))
    return found


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
