"""A search in the records of a topic, in a worker process; its rules are in `tables/search`. It needs none of SQL's
libraries.

The answer is JSON lines, which the broker passes on as they are: `match`, `unread`, `progress`, and last `end`.
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crc32c import crc32c

from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.record_json import show_record
from pqbroker.protocol.records import BATCH_HEADER_BYTES, CRC_END, BatchHeader, Record
from pqbroker.tables.search.batch_search import candidates, unpack
from pqbroker.tables.search.sieve import sieve_of
from pqbroker.tables.search.terms import TermsError, read_terms
from pqbroker.tables.work.messages import Line, Message, Stopped
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.stored_batches import BatchDamaged, in_order, order_of, read_pieces

if TYPE_CHECKING:
    from pqbroker.tables.work.decoding import RecordBySchema

PROGRESS_S: Final = 0.25
"""Seconds between two lines of progress, and for which matches wait to be sent, at most."""
LINES_BYTES: Final = 64 << 10
"""Bytes of lines that are sent at once, about."""
DECODING_LOOK_S: Final = 0.05
"""Seconds between two such looks while records are decoded, as long as none of them takes longer."""
STOP_LOOK_BYTES: Final = 1 << 20
"""Decompressed bytes between two looks at the clock and at the broker, which may want no more."""
SEARCH_READS_MAX: Final = 10
"""Tries to read what the broker moves to other files meanwhile."""
UNREAD_SHOWN_MAX: Final = 100
"""Batches that cannot be read, named at most; all are counted."""
_NOTHING: Final[Mapping[str, Any]] = {}
_LIMITED: Final = ("matches", "bytes", "decompressed_bytes", "answer_bytes")
"""Counts that have a limit, `…_max` in the question, and end the search with their name as the reason."""


class _Over(Exception):
    """A limit is reached: its name is the reason of the end."""


class _ShownBatches(NamedTuple):
    """A stretch as the broker shows it; `payload` begins with its own part."""

    start: int
    document: Mapping[str, Any]
    payload: memoryview


class _Span(NamedTuple):
    """Offsets of a partition from `start` on and before `end`."""

    partition: int
    start: int
    end: int


def search_records(line: Line, message: Message) -> None:
    """Send the lines of an answer. QueryRefused for terms that are none, Stopped."""
    asked = message.document
    decoding: Mapping[str, Any] | None = asked["decoding"]
    try:
        terms = read_terms(asked["terms"])
        sieve = sieve_of(terms, () if decoding is None else decoding["parts"])
        search = _Search(line, asked, terms.matcher().matches, sieve)
    except TermsError as wrong:
        raise QueryRefused("INVALID_SEARCH", str(wrong), "docs/search.md lists what a search may name.") from None
    search.run()


class _Search:
    """One search: what it has found and looked at."""

    def __init__(self, line: Line, asked: Mapping[str, Any], matches: Any, sieve: Any) -> None:
        self._line = line
        self._topic: str = asked["topic"]
        self._limits: Mapping[str, int] = asked["limits"]
        self._spans = deque(_Span(*span) for span in asked["spans"])
        self._next = self._spans[0].start if self._spans else 0
        """Offset to look at next, in the first of the spans."""
        self._total = sum(span.end - span.start for span in self._spans)
        self._passed = 0
        """Offsets of the spans before."""
        self._bytes_total: int = asked["bytes_total"]
        self._matches = matches
        self._sieve = sieve
        self._by_schema = None if asked["decoding"] is None else _by_schema(asked)
        self._undecoded: dict[str, Any] = {}
        """Number of the records with a part that stays raw, and the first of them with its reason; empty without."""
        self._counts = dict.fromkeys((*_LIMITED, "records", "unread"), 0)
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._until_look = STOP_LOOK_BYTES
        self._looked_s = self._sent_s = time.monotonic()
        self._end_s = self._sent_s + self._limits["time_ms"] / 1000

    def run(self) -> None:
        """Search until the end of the topic, or to a limit."""
        reason = "end"
        self._send_progress()
        try:
            while self._spans:
                self._search_span(self._spans[0])
                span = self._spans.popleft()
                self._passed += span.end - span.start
                self._next = self._spans[0].start if self._spans else 0
        except _Over as over:
            reason = str(over)
        self._add({"end": {"reason": reason, **self._shown_state()}})
        self._send()

    def _search_span(self, span: _Span) -> None:
        shown: deque[_ShownBatches] = deque()
        while self._next < span.end:
            if not shown:
                shown = self._ask(span, is_verified=False)
            self._search_stretch(span, shown.popleft(), shown)

    def _ask(self, span: _Span, *, is_verified: bool) -> deque[_ShownBatches]:
        """Have the broker show the next stretches of a partition. Stopped."""
        self._look()
        asked = {
            "partition": span.partition, "offset": self._next, "end_offset": span.end, "is_verified": is_verified
        }  # fmt: skip
        answer = self._line.ask("read", asked)
        start, payload = self._next, memoryview(answer.payload)
        shown: deque[_ShownBatches] = deque()
        for document in answer.document["stretches"]:
            shown.append(_ShownBatches(start, document, payload))
            start = document["next_offset"]
            payload = payload[sum(piece for piece in document["pieces"] if isinstance(piece, int)) :]
        return shown

    def _search_stretch(self, span: _Span, shown: _ShownBatches, following: deque[_ShownBatches]) -> None:
        """Search in a stretch; read it again where its file holds something else by now."""
        reason, is_verified = "", False
        for _ in range(SEARCH_READS_MAX):
            document = shown.document
            if reason := document.get("unread", ""):
                break
            if following:
                _read_ahead(following[0].document["pieces"])
            try:
                run, _ = read_pieces(document["pieces"], shown.payload)
                self._search_run(span, run, document, is_verified=is_verified)
                self._next = max(self._next, document["next_offset"])
                return
            except OSError as moved:
                reason = str(moved)
            except (BatchDamaged, KafkaError) as damaged:
                reason = str(damaged)
                if is_verified:
                    break
            following.clear()
            is_verified = True
            shown = self._ask(span, is_verified=True).popleft()
        end_offset = max(shown.document["next_offset"], self._next + 1)
        self._tell_unread(span.partition, self._next, end_offset, reason)
        self._next = end_offset

    def _search_run(self, span: _Span, run: bytes, document: Mapping[str, Any], *, is_verified: bool) -> None:
        """Search in the batches of a stretch from `_next` on. BatchDamaged; KafkaError for headers that are none."""
        order = order_of(document["bounds"], document.get("aborted"))
        view = memoryview(run)
        for position, header in in_order(view, order):
            if header.last_offset < self._next:
                continue
            if header.base_offset >= span.end:
                return
            size = header.size_bytes
            if not is_verified and crc32c(view[position + CRC_END : position + size]) != header.crc:
                raise BatchDamaged(f"the checksum of the batch at offset {header.base_offset} is wrong")
            if not header.is_control:
                self._search_batch(span, run, position, header)
            self._next = max(self._next, header.last_offset + 1)

    def _search_batch(self, span: _Span, run: bytes, position: int, header: BatchHeader) -> None:
        """Search in a batch. One whose bytes are no records is passed over, and named."""
        counts, limits = self._counts, self._limits
        if counts["bytes"] >= limits["bytes_max"]:
            raise _Over("bytes")
        if counts["decompressed_bytes"] >= limits["decompressed_bytes_max"]:
            raise _Over("decompressed_bytes")
        counts["bytes"] += header.size_bytes
        try:
            records = unpack(run, position, header, limits["batch_bytes_max"])
            self._count_unpacked(records.end - records.start + BATCH_HEADER_BYTES)
            found = candidates(records, header, self._sieve)
            if self._by_schema is None:
                self._search_plain(span, found)
            else:
                self._search_decoded(span, found, self._by_schema)
        except KafkaError as refusal:
            self._tell_unread(span.partition, header.base_offset, header.last_offset + 1, refusal.message)
        counts["records"] += header.record_count

    def _search_plain(self, span: _Span, found: Iterator[Record]) -> None:
        for record in filter(self._matches, found):
            if self._next <= record.offset < span.end:
                self._take(span, record)

    def _search_decoded(
        self, span: _Span, found: Iterator[Record], by_schema: "Callable[[Record], RecordBySchema]"
    ) -> None:
        """Search in records as schemas decode them. One may take a request to the registry, or have a million parts:
        the clock is looked at by time, and `_next` stays before what was not looked at."""
        for record in found:
            if not self._next <= record.offset < span.end:
                continue
            if time.monotonic() >= self._looked_s + DECODING_LOOK_S:
                self._next = record.offset
                self._look()
            decoded = by_schema(record)
            if is_match := self._matches(decoded):
                decoded.decode()
            if refusal := decoded.refusal:
                place = {"partition": span.partition, "offset": record.offset}
                self._undecoded = self._undecoded or {"records": 0, **refusal, **place}
                self._undecoded["records"] += 1
            if is_match:
                self._take(span, record, {"decoded": decoded.shown})

    def _count_unpacked(self, size: int) -> None:
        self._counts["decompressed_bytes"] += size
        self._until_look -= size
        if self._until_look < 0:
            self._look()

    def _take(self, span: _Span, record: Record, also: Mapping[str, Any] = _NOTHING) -> None:
        """Add a match, where there is room for it; `_next` stays before the first one that has none."""
        counts, limits = self._counts, self._limits
        line = _line({"match": {**show_record(self._topic, span.partition, record), **also}})
        if counts["matches"] and counts["answer_bytes"] + len(line) > limits["answer_bytes_max"]:
            self._next = record.offset
            raise _Over("answer_bytes")
        counts["matches"] += 1
        counts["answer_bytes"] += len(line)
        self._add_line(line)
        if counts["matches"] >= limits["matches_max"]:
            self._next = record.offset + 1
            raise _Over("matches")

    def _tell_unread(self, partition: int, offset: int, end_offset: int, reason: str) -> None:
        self._counts["unread"] += 1
        if self._counts["unread"] <= UNREAD_SHOWN_MAX:
            place = {"partition": partition, "offset": offset, "end_offset": end_offset, "reason": reason}
            self._add({"unread": place})

    def _look(self) -> None:
        """Send what there is, now and then. Stopped; _Over when its time is over."""
        self._until_look = STOP_LOOK_BYTES
        if self._line.has_unasked():
            raise Stopped
        self._looked_s = now_s = time.monotonic()
        if now_s > self._end_s:
            raise _Over("time")
        if now_s > self._sent_s + PROGRESS_S:
            self._send_progress()

    def _add(self, document: Mapping[str, Any]) -> None:
        self._add_line(_line(document))

    def _add_line(self, line: bytes) -> None:
        self._lines.append(line)
        self._lines_bytes += len(line)
        if self._lines_bytes >= LINES_BYTES:
            self._send()

    def _send_progress(self) -> None:
        self._add({"progress": self._shown_state()})
        self._send()
        self._sent_s = time.monotonic()

    def _send(self) -> None:
        lines, self._lines, self._lines_bytes = self._lines, [], 0
        if lines:
            self._line.send("result", {}, b"".join(lines))

    def _shown_state(self) -> dict[str, Any]:
        """Return what was looked at, and where another search continues."""
        undecoded = {"undecoded": self._undecoded} if self._undecoded else {}
        return {**self._shown_counts(), "next_offsets": self._next_offsets(), **undecoded}

    def _shown_counts(self) -> dict[str, int]:
        counts = self._counts
        passed = self._passed + (self._next - self._spans[0].start if self._spans else 0)
        return {
            "matches": counts["matches"], "records": counts["records"], "offsets": min(passed, self._total),
            "offsets_total": self._total, "bytes": counts["bytes"], "bytes_total": self._bytes_total,
            "decompressed_bytes": counts["decompressed_bytes"], "unread": counts["unread"],
        }  # fmt: skip

    def _next_offsets(self) -> dict[str, int]:
        """Return where another search continues, by partition; none are left at the end."""
        offsets = {str(span.partition): span.start for span in self._spans}
        if self._spans:
            offsets[str(self._spans[0].partition)] = self._next
        return offsets


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace") + b"\n"


def _by_schema(asked: Mapping[str, Any]) -> "Callable[[Record], RecordBySchema]":
    from pqbroker.registry.decoding import TopicDecoders  # loaded with the first topic that names a registry
    from pqbroker.tables.work.decoding import RecordBySchema

    decoders, bytes_max = TopicDecoders(asked["decoding"]), asked["limits"]["decoded_bytes_max"]
    return lambda record: RecordBySchema(record, decoders, bytes_max)


def _read_ahead(pieces: list[Any]) -> None:
    """Have the system read the next files while these are searched."""
    if sys.platform != "linux":
        return
    for path, position, size in (piece for piece in pieces if not isinstance(piece, int)):
        with suppress(OSError), open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), position, size, os.POSIX_FADV_WILLNEED)
