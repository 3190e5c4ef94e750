"""Messages between broker and worker over one socket: a document of JSON and a payload of bytes, each with its length
before it.

Once it has a query the worker leads; the kinds of messages:

    broker  query     {query, params: a list, an object or null, format, explain, depth_max, memory_bytes_max,
                      columns_bytes_max, files: [[name, size]] of those that came with it}; its payload: these files
    worker  find      {topics: [name]}; answered by
    broker  found     {topics: {name: {id, bounds: [[start, end] of each partition], columns: its schema's, or null,
                      decoding: as below, or null, columns_max: of a registry's schema,
                      unmounted: [tablet], revisions: [what changes when rows of a partition go]}}}; of a sorted table
                      {sorted: its schema, as below, pivots: the first key of each tablet, timestamp: what the query
                      reads at, unmounted}; of a local file {file: {directory, name, bytes_max, columns_max}}, of one
                      that came with the query {file: {name, columns_max, is_sent: true}}
    worker  check     {name: topic or table that the caller may read}; answered by
    broker  checked   {file: as above, of a local file, or null}
    worker  list      {after: a name, names: [name] or null: all, columns: whether they are wanted}; answered by
    broker  listed    {tables: [{name, kind, tablets, columns, formats, decoding, columns_max, or sorted or
                      file: as above}],
                      next: what the next page is after, or null}
    worker  read      {topic, partition, offset, end_offset, timestamp_min, timestamp_max: or null, facts: whether
                      they are wanted, commits: [least, greatest] timestamp of rows' commits, or null; is_verified:
                      whether files are to be read first}; answered by
    broker  stretches {stretches, which follow one another: [{pieces: [[path, position, size] or size], offset: where
                      it begins, next_offset, blob, bounds: [first offset, end] of the batches, or null, weight_before
                      and facts_bytes: of the facts, aborted: [[marker's offset, producer, first offset, …]] of Kafka
                      transactions}]}; its payload, stretch by stretch: the pieces without a path, and the facts of
                      the rows
    worker  times     {topic, partition, start, end, least: time of the records in [start, end)}; not answered
    worker  locate    {table, tablet, ranges: [[first key, end, or null]]} of a sorted table; answered by
    broker  inputs    {inputs, as below: what may have rows in the ranges, chunks: how many the tablet has in all}
    worker  result    its payload is a piece of the answer
    worker  refused   {code, message, cure}: the query is over
    worker  done      {resident_bytes, explanation}: the query is over
    broker  stop      {}: at any time, instead of an answer or not: the query is over; answered, behind all that was
                      sent before, by
    worker  stopped   {resident_bytes}

Rows to insert take one question:

    broker  rows      {schema, now_ms, batch_bytes_max, memory_bytes_max}; its payload: an Arrow IPC stream
    worker  encoded   {tablets: [[index or null, row count, size]], weight, resident_bytes}; its payload: a batch each
    worker  refused   {code, message, cure}

So do those of a sorted table:

    broker  sorted_rows {schema: its columns, is_update, memory_bytes_max}; its payload: an Arrow IPC stream
    worker  packed    {rows, resident_bytes}; its payload: lengths of encoded keys, lengths of packed versions, 4 bytes
                      each, then keys, then versions but for their timestamps
    worker  refused   {code, message, cure}

Inputs of sorted tables are {kind: log or chunk, pieces: [[path, position, size] or size]}: stored values, whose pieces
without a path lie in the payload, one behind the other. A schema is {key: [[name, type]], value: [[name, type]]}; keys
are encoded, in hexadecimal; timestamps are those of commits. New chunks take one question:

    broker  merge     {schema, inputs, clean_up: null (all versions stay), or the fields of `versions.CleanUp`;
                      merge_deletions: whether deletes of a key that follow one another become one; pivots: keys
                      that chunks are cut at, rising; chunk_bytes_max, samples_max, versions_max: of one key;
                      memory_bytes_max}; answered by
    worker  piece     {chunk: its number}; its payload: the bytes of the chunk that follow, at most 1 MiB
    worker  merged    {chunks: [{partition: how many pivots are at its keys or below, rows, keys, deletes, blocks, size,
                      index_bytes: of the index with its footer, unpacked_bytes, least_timestamp, greatest_timestamp,
                      first_key, last_key, samples: [[key, bytes to the next]]}], rows_read, resident_bytes}
    worker  refused   {code, message, cure, input: its number, or null}: TOO_MANY_VERSIONS, INPUT_DAMAGED, or INPUT_GONE
                      where a file is not as long as it was, which may be tried again; pieces before are void

A compacted partition is cleaned body by body, up to an offset; the worker leads:

    broker  clean     {dirty_from: what ends before was cleaned, bound: the offset, keys_max: that there may be between,
                      buffer_bytes and load_factor: of its table of keys, now_ms, delete_retention_ms,
                      unpacked_bytes_max: of a batch, memory_bytes_max}
    worker  dirty     {offset, end_offset, is_verified: as in `read`}: batches whose keys it takes; answered by
    broker  bodies    {stretches: [{pieces, bounds}], as above, bodies: how many they are from, next_offset: where the
                      next ones begin, is_damaged: whether a batch cannot be read, aborted: Kafka transactions there,
                      is_again: whether they are left of a window of which bodies were deleted}
    worker  window    {offset, bound, is_verified}: the bodies that become one, from an offset on; answered as `dirty`,
                      with bodies 0 where there is none, and by bodies before where some of the last ones were deleted
                      before they were replaced; each is followed by
    worker  kept      {records, records_gone, tombstones_gone, keyless}: they stay as they are; or by
    worker  piece     {}; its payload: the bytes of the new body that follow, at most 1 MiB, and behind the last one
    worker  body      {columns: its index, records, records_gone, tombstones_gone, keyless}
    worker  cleaned   {bound: less than asked for where keys had no room, keys, unread: offsets of batches that stay as
                      they are, is_clean, due_ms: as the rules have it, emptied: offsets of markers whose transactions
                      have no batch left, resident_bytes}
    worker  refused   {message}

So do the rows of a range of keys at a timestamp:

    broker  scan      {schema, inputs, columns: [name], timestamp, first, end: null, or the key behind the range;
                      rows_max: null, or a limit; format, memory_bytes_max}; answered by
    worker  result    its payload is a piece of the answer, in the order of the keys
    worker  done      {rows, blocks_read, blocks: of the chunks, resident_bytes}
    worker  refused   {code, message, cure, input}

Records of a topic become rows of the sorted table that they feed:

    broker  materialize {table: columns of the table, columns: of the topic's schema, or null, formats, origins: by
                      column, topic, partition, start and end: offsets, aborted: Kafka transactions there, as above,
                      pivots: of the tablets, letters_max: dead letters that an answer names, letter_batch_bytes_max: of
                      their batches, or null: none are made; memory_bytes_max}; its payload: record batches; answered by
    worker  rows      {next_offset, records, tablets: [[index, rows]], letter_count, letters: [[offset, reason]], the
                      last ones; batches: [size]}; its payload: the rows, each with the lengths of its version and its
                      key before key and version, and the batches of dead letters; an answer is one commit
    worker  done      {resident_bytes}
    worker  refused   {code, message, cure}

Records are decoded by the schemas of a registry, which the worker asks:

    broker  decode    {decoding: as `registry.decoding.topic_document` makes it, sizes: [[of the key, of the value]],
                      null for what is null, time_ms, answer_bytes_max, memory_bytes_max}; its payload: keys and values;
                      answered by
    worker  decoded   {resident_bytes}; its payload: a JSON array with an object for each record, by part: {schema,
                      type, content} or {code, reason}

Records of a topic are searched:

    broker  search    {topic, terms: as `tables/search/terms.py` reads them, spans: [[partition, first offset, end]],
                      bytes_total: about, limits: {matches_max, bytes_max, decompressed_bytes_max, batch_bytes_max,
                      answer_bytes_max, time_ms}, memory_bytes_max}
    worker  read      {partition, offset, end_offset, is_verified}; answered by
    broker  stretches {stretches: [{pieces, next_offset, bounds, aborted}], as above; or of one that is damaged
                      {pieces: [], next_offset, unread: the reason}}
    worker  result    its payload: lines of the answer
    worker  done      {resident_bytes}
    worker  refused   {code, message, cure}

All of them stop like a query.
"""

import json
import select
import socket
import threading
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

Bytes = bytes | bytearray | memoryview
LENGTHS = Struct("<II")
"""Lengths of a message's document and payload."""
STOP = "stop"
STOPPED = "stopped"


class Message(NamedTuple):
    """One message."""

    kind: str
    document: dict[str, Any]
    payload: Bytes


def pack(kind: str, document: Mapping[str, Any], payload_bytes: int = 0) -> bytes:
    """A message up to its payload."""
    text = json.dumps({"kind": kind, **document}).encode()
    return LENGTHS.pack(len(text), payload_bytes) + text


def unpack(text: bytes, payload: Bytes) -> Message:
    """The message of which these are the parts."""
    document = json.loads(text)
    return Message(document.pop("kind"), document, payload)


class Stopped(Exception):
    """The broker wants no more of the query."""


class Line:
    """The worker's end, which blocks."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._incoming = select.poll()
        self._incoming.register(connection, select.POLLIN)
        self._polling = threading.Lock()
        """Held while one of the threads polls: two at once are an error."""
        self._is_waiting = True
        """True while the thread waits for a message."""
        self._asked = 0
        self.is_stopped = False

    def send(self, kind: str, document: Mapping[str, Any], payload: Bytes = b"") -> None:
        """ConnectionError when the broker has gone."""
        parts = [memoryview(part) for part in (pack(kind, document, len(payload)), payload)]
        sent = self._socket.sendmsg(parts)  # at once, so that the broker wakes once
        for part in parts:
            if sent < len(part):
                self._socket.sendall(part[sent:])
            sent = max(sent - len(part), 0)

    def begin(self) -> Message:
        """The next query or rows. EOFError when the broker has gone."""
        self._is_waiting = True
        message = self.receive()
        self._is_waiting = self.is_stopped = False
        return message

    def has_unasked(self) -> bool:
        """Return True if the broker has asked to stop, which no thread waits for. Any thread may ask; a message that
        arrives meanwhile is not taken for it."""
        asked = self._asked
        if self._is_waiting:
            return False
        with self._polling:
            if not self._incoming.poll(0):
                return False
        return not self._is_waiting and self._asked == asked

    def finish_stop(self) -> None:
        """Take the message that says to stop, unless it was taken in place of an answer."""
        while not self.is_stopped:
            self.is_stopped = self.receive().kind == STOP

    def receive(self) -> Message:
        """EOFError when the broker has gone."""
        document_bytes, payload_bytes = LENGTHS.unpack(self._take(LENGTHS.size))
        text = self._take(document_bytes)
        return unpack(text, self._take(payload_bytes))

    def ask(self, kind: str, document: Mapping[str, Any]) -> Message:
        """Send a message and wait for its answer. Stopped."""
        if self.is_stopped:
            raise Stopped
        self._is_waiting = True
        self._asked += 1
        self.send(kind, document)
        message = self.receive()
        self._is_waiting = False
        if message.kind == STOP:
            self.is_stopped = True
            raise Stopped
        return message

    def _take(self, size: int) -> bytes:
        """No more than that: what follows is seen by who watches the socket."""
        data = self._socket.recv(size, socket.MSG_WAITALL) if size else b""
        while len(data) < size:
            more = self._socket.recv(size - len(data), socket.MSG_WAITALL)
            if not more:
                raise EOFError
            data += more
        return data
