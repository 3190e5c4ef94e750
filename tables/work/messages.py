"""What broker and worker say to each other over one socket: a document of JSON and a payload of bytes, each with its
length before it.

Once it has a query the worker leads; the kinds of messages:

    broker  query     {query, format, explain, depth_max, memory_bytes_max, columns_bytes_max}
    worker  find      {topics: [name]}; answered by
    broker  found     {topics: {name: {id, bounds: [[start, end] of each partition], columns: its schema's, or null}}}
    worker  read      {topic, partition, offset, end_offset, timestamp_min, facts: whether they are wanted,
                      commits: [least, greatest] timestamp of rows' commits, or null; is_verified: whether files are to
                      be read first}; answered by
    broker  stretches {stretches, which follow one another: [{pieces: [[path, position, size] or size], next_offset,
                      blob, bounds: [first offset, end] of the batches, or null, weight_before and facts_bytes: of the
                      facts}]}; its payload, stretch by stretch: the pieces without a path, and the facts of the rows
    worker  result    its payload is a piece of the answer
    worker  refused   {code, message, cure}: the query is over
    worker  done      {resident_bytes, explanation}: the query is over

Rows to insert take one question:

    broker  rows      {schema, now_ms, batch_bytes_max, memory_bytes_max}; its payload: an Arrow IPC stream
    worker  encoded   {tablets: [[index or null, row count, size]], weight, resident_bytes}; its payload: a batch each
    worker  refused   {code, message, cure}
"""

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

Bytes = bytes | bytearray | memoryview
_LENGTHS = Struct("<II")


class Message(NamedTuple):
    """One message."""

    kind: str
    document: dict[str, Any]
    payload: Bytes


def pack(kind: str, document: Mapping[str, Any], payload_bytes: int = 0) -> bytes:
    """A message up to its payload."""
    text = json.dumps({"kind": kind, **document}).encode()
    return _LENGTHS.pack(len(text), payload_bytes) + text


async def send(
    writer: asyncio.StreamWriter, kind: str, document: Mapping[str, Any], payload: Sequence[Bytes] = ()
) -> None:
    """Send a message from the loop. ConnectionError when the other side has gone."""
    writer.writelines([pack(kind, document, sum(map(len, payload))), *payload])
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> Message:
    """The next message. EOFError, ConnectionError when the other side has gone."""
    document_bytes, payload_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    text = await reader.readexactly(document_bytes)
    return _message(text, await reader.readexactly(payload_bytes) if payload_bytes else b"")


class Line:
    """The worker's end, which blocks."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._file = connection.makefile("rb")

    def send(self, kind: str, document: Mapping[str, Any], payload: Bytes = b"") -> None:
        """ConnectionError when the broker has gone."""
        self._socket.sendall(pack(kind, document, len(payload)))
        if payload:
            self._socket.sendall(payload)

    def receive(self) -> Message:
        """EOFError when the broker has gone."""
        document_bytes, payload_bytes = _LENGTHS.unpack(self._take(_LENGTHS.size))
        text = self._take(document_bytes)
        return _message(text, self._take(payload_bytes))

    def ask(self, kind: str, document: Mapping[str, Any]) -> Message:
        """Send a message and wait for its answer."""
        self.send(kind, document)
        return self.receive()

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise EOFError
        return data


def _message(text: bytes, payload: Bytes) -> Message:
    document = json.loads(text)
    return Message(document.pop("kind"), document, payload)
