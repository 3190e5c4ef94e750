"""The rows of a topic: what this process has kept of them, else as the broker hands them over, regions of segment files
that this process reads, and bytes.

Nobody keeps a file that was named: where it is gone, or holds something else by now, the broker is asked again.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pqbroker.pq.log.row_facts import RowFacts
from pqbroker.tables.work.batches import NO_ORDER, BatchDamaged, Order, Span, decode
from pqbroker.tables.work.kept_columns import KeptColumns, Stretch
from pqbroker.tables.work.messages import Line, Message
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.views import RAW_VIEW, View

ATTEMPTS_MAX = 10
ALL_TIMES = -(1 << 63)
"""The `timestamp_min` that leaves out no row."""


class Wanted(NamedTuple):
    """What a query reads of a topic. `timestamp_min`: rows before it may be left out."""

    topic: str
    spans: Sequence[Span]
    columns: Sequence[str]
    timestamp_min: int
    view: View = RAW_VIEW
    topic_id: str = ""


class Tally:
    """What was read; it grows."""

    __slots__ = ("blobs", "refusal", "rows", "stored_bytes")

    def __init__(self) -> None:
        self.blobs: set[tuple[str, int, int]] = set()
        self.refusal: QueryRefused | None = None
        """Why there was no more to read: DuckDB, which took the rows, has lost it on the way."""
        self.rows = 0
        self.stored_bytes = 0


def scan(line: Line, wanted: Wanted, tally: Tally, kept: KeptColumns) -> Iterator[Any]:
    """Batches of Arrow, tablet by tablet in the order of rows."""
    for span in wanted.spans:
        row = span.start
        while row < span.end:
            stretch = _stretch(line, wanted, span._replace(start=row), tally, kept)
            found = stretch.rows(row, span.end, wanted.columns)
            row = stretch.end
            if found.num_rows:
                tally.blobs.add((wanted.topic, span.tablet, stretch.blob))
                tally.rows += found.num_rows
                yield found


def _stretch(line: Line, wanted: Wanted, span: Span, tally: Tally, kept: KeptColumns) -> Stretch:
    """Rows from the beginning of a span on: what is kept of them, or what is read, and kept if all rows are wanted."""
    place = (wanted.topic_id, wanted.view.text, span.tablet)
    stretch = kept.find(place, span.start, wanted.columns)
    if stretch is None:
        stretch = _read_stretch(line, wanted, span, tally)
        if wanted.timestamp_min == ALL_TIMES:
            kept.keep(place, stretch)
    return stretch


def _read_stretch(line: Line, wanted: Wanted, span: Span, tally: Tally) -> Stretch:
    """The first rows of a span, none perhaps, as many as the broker hands over at once."""
    damage: Exception | None = None
    asked = {
        "topic": wanted.topic, "partition": span.tablet, "offset": span.start, "end_offset": span.end,
        "timestamp_min": wanted.timestamp_min, "facts": wanted.view.wants_facts(wanted.columns),
    }  # fmt: skip
    for _ in range(ATTEMPTS_MAX):
        answer = line.ask("read", {**asked, "is_verified": isinstance(damage, BatchDamaged)})
        end = min(answer.document["next_offset"], span.end)
        try:
            data, rest = _bytes_of(answer)
            facts = RowFacts.decode(answer.document["weight_before"], bytes(rest)) if asked["facts"] else None
            order = Order(*answer.document["bounds"] or NO_ORDER)
            batch = decode(memoryview(data), span._replace(end=end), wanted.columns, wanted.view, facts, order)
        except (OSError, BatchDamaged) as error:
            damage = error
            continue
        tally.stored_bytes += len(data)
        return Stretch(span.start, end, answer.document["blob"], batch)
    where = f"{wanted.topic} from tablet {span.tablet}, row {span.start} on"
    tally.refusal = QueryRefused(
        "CORRUPT_MESSAGE", f"the rows of {where} are damaged: {damage}",
        'Leave them out with "$row_index" or "$tablet_index"; `pqbroker doctor` says what is damaged.',
    )  # fmt: skip
    raise tally.refusal


def _bytes_of(stretch: Message) -> tuple[bytes, memoryview]:
    """The pieces end to end, and what follows them in the payload. OSError for a file that is gone or ends early."""
    parts: list[bytes | memoryview] = []
    payload, taken = memoryview(stretch.payload), 0
    for piece in stretch.document["pieces"]:
        if isinstance(piece, int):
            parts.append(payload[taken : taken + piece])
            taken += piece
        else:
            parts.append(_read(*piece))
    return b"".join(parts), payload[taken:]


def _read(path: str, position: int, size: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(file, size, position)
    finally:
        os.close(file)
    if len(data) < size:
        raise OSError(f"{path} ends early")
    return data
