"""The rows of a topic: what this process has kept of them, else as the broker hands them over (`stored_batches`)."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as compute

from pqbroker.pq.log.row_facts import TIMESTAMP, RowFacts
from pqbroker.tables.work.batches import RowRange, decode
from pqbroker.tables.work.kept_columns import KeptColumns, Stretch
from pqbroker.tables.work.messages import Line
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.stored_batches import BatchDamaged, order_of, read_pieces
from pqbroker.tables.work.views import RAW_VIEW, View

ATTEMPTS_MAX = 10
FIRST_STRETCH_BYTES = 64 << 10
"""Stored bytes that a query is shown at first, about, as one stretch: many a LIMIT needs no more. Then the broker shows
as many as it likes."""
ALL_TIMES = -(1 << 63)
"""The `timestamp_min` that leaves out no row."""


TIME_COLUMN = "timestamp_ms"
NO_TIME = (1 << 63) - 1
"""The least time of rows without any."""


class Origin(NamedTuple):
    """The topic's id, and what tells of each tablet whether rows of it that were kept are still all there."""

    topic_id: str = ""
    revisions: Sequence[str] = ()


class TopicScan(NamedTuple):
    """The part of a topic that a query reads. `timestamp_min`: rows before it may be left out. `commits`: so may those
    whose `$timestamp` is none of these, from least to greatest; `timestamp_max`: so may those after it."""

    topic: str
    spans: Sequence[RowRange]
    columns: Sequence[str]
    timestamp_min: int
    view: View = RAW_VIEW
    origin: Origin = Origin()
    commits: tuple[int, int] | None = None
    timestamp_max: int | None = None

    @property
    def types(self) -> Mapping[str, Any]:
        """Return the Arrow types of all columns by name."""
        return self.view.types

    def schema(self) -> Any:
        """Return the Arrow schema of the rows."""
        return self.view.schema(self.columns)

    def explained(self) -> dict[str, Any]:
        """Return what a scan reads."""
        tablets = list(dict.fromkeys(span.tablet for span in self.spans))
        return {"topic": self.topic, "tablets": tablets, "columns": list(self.columns)}


class Tally:
    """The count of what was read; it grows."""

    __slots__ = ("blobs", "refusal", "rows", "stored_bytes")

    def __init__(self) -> None:
        self.blobs: set[tuple[str, int, int]] = set()
        self.refusal: QueryRefused | None = None
        """Error that ended the reading; DuckDB, which took the rows, does not pass it on."""
        self.rows = 0
        self.stored_bytes = 0


class _Shown(NamedTuple):
    """A stretch as the broker shows it. `payload`: what follows is not its own."""

    tablet: int
    start: int
    document: dict[str, Any]
    payload: memoryview


class _Stretches:
    """The stretches of one topic, as the broker shows them: a few at a time."""

    def __init__(self, line: Line, wanted: TopicScan) -> None:
        self.line = line
        self._wanted = wanted
        self._shown: deque[_Shown] = deque()
        self._has_begun = False

    def next(self, span: RowRange, *, is_verified: bool) -> _Shown:
        """The one that begins with a span. What was shown before it is none of this reader's any more."""
        while self._shown and not is_verified:
            shown = self._shown.popleft()
            if (shown.tablet, shown.start) == (span.tablet, span.start):
                return shown
        wanted = self._wanted
        asked = {
            "topic": wanted.topic, "partition": span.tablet, "offset": span.start, "end_offset": span.end,
            "timestamp_min": wanted.timestamp_min,
            "timestamp_max": wanted.timestamp_max, "facts": wanted.view.wants_facts(wanted.columns),
            "commits": wanted.commits, "is_verified": is_verified,
            "bytes_max": None if self._has_begun else FIRST_STRETCH_BYTES,
        }  # fmt: skip
        self._has_begun = True
        answer = self.line.ask("read", asked)
        start, payload = span.start, memoryview(answer.payload)
        self._shown.clear()
        for document in answer.document["stretches"]:
            self._shown.append(_Shown(span.tablet, start, document, payload))
            start = document["next_offset"]
            payload = payload[_payload_bytes(document) :]
        return self._shown.popleft()


def scan(line: Line, wanted: TopicScan, tally: Tally, kept: KeptColumns) -> Iterator[Any]:
    """Batches of Arrow, tablet by tablet in the order of rows."""
    stretches = _Stretches(line, wanted)
    for span in wanted.spans:
        row = span.start
        while row < span.end:
            stretch = _stretch(stretches, wanted, span._replace(start=row), tally, kept)
            found = stretch.rows(row, span.end, wanted.columns)
            row = stretch.end
            if found.num_rows and not _is_left_out(found, wanted.commits):
                tally.blobs.add((wanted.topic, span.tablet, stretch.blob))
                tally.rows += found.num_rows
                yield found


def _is_left_out(found: Any, commits: tuple[int, int] | None) -> bool:
    """Return True if none of these rows, which may be kept ones, was committed at such a time."""
    if commits is None:
        return False
    least, most = compute.min_max(found.column(TIMESTAMP)).as_py().values()
    return least is not None and (most < commits[0] or least > commits[1])


def _stretch(stretches: _Stretches, wanted: TopicScan, span: RowRange, tally: Tally, kept: KeptColumns) -> Stretch:
    """Rows from the beginning of a span on: what is kept of them, or what is read, and kept if all rows are wanted."""
    topic_id, revisions = wanted.origin
    revision = revisions[span.tablet] if span.tablet < len(revisions) else ""
    tablet_key = (f"{topic_id} {revision}", wanted.view.text, span.tablet)
    stretch = kept.find(tablet_key, span.start, wanted.columns)
    if stretch is None:
        stretch = _read_stretch(stretches, wanted, span, tally)
        if wanted.timestamp_min == ALL_TIMES and wanted.view.is_whole:
            kept.keep(tablet_key, stretch)
    return stretch


def _read_stretch(stretches: _Stretches, wanted: TopicScan, span: RowRange, tally: Tally) -> Stretch:
    """The first rows of a span, none perhaps, as many as the broker shows as one stretch."""
    damage: Exception | None = None
    for _ in range(ATTEMPTS_MAX):
        shown = stretches.next(span, is_verified=isinstance(damage, BatchDamaged))
        document = shown.document
        end = min(document["next_offset"], span.end)
        try:
            data, rest = read_pieces(document["pieces"], shown.payload)
            facts = None
            if "facts_bytes" in document:
                facts = RowFacts.decode(document["weight_before"], bytes(rest[: document["facts_bytes"]]))
            order = order_of(document["bounds"], document.get("aborted"))
            batch = decode(memoryview(data), span._replace(end=end), wanted.columns, wanted.view, facts, order)
        except (OSError, BatchDamaged) as error:
            damage = error
            continue
        tally.stored_bytes += len(data)
        if wanted.timestamp_max is not None and wanted.commits is None and not document.get("aborted"):
            first, _ = document["bounds"] or (span.start, end)
            whole = RowRange(span.tablet, max(span.start, document["offset"], first), end)
            _tell_least_time(stretches.line, wanted.topic, whole, batch)
        return Stretch(span.start, end, document["blob"], batch)
    where = f"{wanted.topic} from tablet {span.tablet}, row {span.start} on"
    tally.refusal = QueryRefused(
        "CORRUPT_MESSAGE", f"the rows of {where} are damaged: {damage}",
        'Leave them out with "$row_index" or "$tablet_index"; `pqbroker doctor` says what is damaged.',
    )  # fmt: skip
    raise tally.refusal


def _tell_least_time(line: Line, topic: str, span: RowRange, batch: Any) -> None:
    """Send the least time of rows, all of their span: the broker leaves it out for a query that ends before it."""
    least = compute.min(batch.column(TIME_COLUMN)).as_py()
    line.send("times", {
        "topic": topic, "partition": span.tablet, "start": span.start, "end": span.end,
        "least": NO_TIME if least is None else least,
    })  # fmt: skip


def _payload_bytes(document: dict[str, Any]) -> int:
    """Return the payload bytes of one stretch."""
    pieces: int = sum(piece for piece in document["pieces"] if isinstance(piece, int))
    return pieces + int(document.get("facts_bytes", 0))
