"""Records of a topic as rows of the sorted table that they feed, the latest of each key in every answer.

A record that is no row is left out and named with the reason; where the table has a topic for these, it is encoded for
that too.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import read_schema
from pqbroker.tables.sorted.column_origins import FedRecord, RowMaker
from pqbroker.tables.sorted.fed_rows import encode_fed_rows
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.schema import read_sorted_schema
from pqbroker.tables.work.batches import RowRange, records_of
from pqbroker.tables.work.messages import Line, Message, Stopped
from pqbroker.tables.work.stored_batches import BatchDamaged, order_of

ANSWER_ROWS: Final = 2_000
"""Rows and dead letters of one answer, which are one commit: the broker's loop applies them in 2 to 4 ms."""
ANSWER_BYTES: Final = 1 << 20
"""Bytes of rows and dead letters after which an answer ends."""
REASON_CHARACTERS_MAX: Final = 300
_MAGIC = 2
_NO_PRODUCER = (-1, -1, -1)
_HEADER_BYTES = 2 << 10
"""Room that the headers of a dead letter, and the head of its batch, take at most."""


class _DeadLetter(NamedTuple):
    record: FedRecord
    reason: str


def materialize(line: Line, message: Message) -> dict[str, Any]:
    """Send rows answer by answer; return what the message `done` says. TableError, Stopped."""
    document = message.document
    table = read_sorted_schema(document["table"], len(document["table"]))
    columns, formats = document["columns"], document["formats"]
    topic = None if columns is None else read_schema(columns, len(columns), formats)
    answers = _Answers(line, document, RowMaker(table, topic, document["origins"]))
    span = RowRange(document["partition"], document["start"], document["end"])
    order = order_of(None, document.get("aborted"))
    try:
        for record in records_of(memoryview(message.payload), span, order):
            if answers.is_full and line.has_unasked():
                raise Stopped
            answers.take(FedRecord(span.tablet, record.offset, record.timestamp, record.key, record.value))
    except BatchDamaged as damage:
        text = f"the records of partition {span.tablet} from offset {answers.next_offset} on are damaged: {damage}"
        raise TableError("CORRUPT_MESSAGE", text, "`pqbroker doctor` says what is damaged.") from None
    answers.finish(span.end)
    return {}


class _Answers:
    """Rows and dead letters that are gathered for the next answer."""

    def __init__(self, line: Line, document: dict[str, Any], maker: RowMaker) -> None:
        self._line = line
        self._maker = maker
        self._pivots = [bytes.fromhex(pivot) for pivot in document["pivots"]]
        self._letters_max: int = document["letters_max"]
        self._batch_bytes_max: int | None = document["letter_batch_bytes_max"]
        self._topic: str = document["topic"]
        self.next_offset: int = document["start"]
        self._begin()

    def _begin(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._letters: list[_DeadLetter] = []
        self._records = 0
        self._size = 0

    @property
    def is_full(self) -> bool:
        return len(self._rows) + len(self._letters) >= ANSWER_ROWS or self._size >= ANSWER_BYTES

    def take(self, record: FedRecord) -> None:
        """Take the next record."""
        if self.is_full:
            self._send()
        try:
            row = self._maker.make(record)
        except ValueError as reason:
            self._letters.append(_DeadLetter(record, str(reason)[:REASON_CHARACTERS_MAX]))
            if self._batch_bytes_max is not None:
                self._size += len(record.key or b"") + len(record.value or b"")
        else:
            self._rows[row.key] = row.body
            self._size += len(row.key) + len(row.body)
        self._records += 1
        self.next_offset = record.offset + 1

    def finish(self, end: int) -> None:
        """Send what is left: all records before `end` were taken."""
        self.next_offset = end
        self._send()

    def _send(self) -> None:
        by_tablet: dict[int, list[NewRow]] = {}
        for key, body in self._rows.items():
            by_tablet.setdefault(bisect_right(self._pivots, key) - 1, []).append(NewRow(key, body))
        tablets = sorted(by_tablet)
        batches = list(self._batches())
        payload = [encode_fed_rows(by_tablet[tablet]) for tablet in tablets]
        shown = self._letters[-self._letters_max :]
        document = {
            "next_offset": self.next_offset, "records": self._records,
            "tablets": [[tablet, len(by_tablet[tablet])] for tablet in tablets], "letter_count": len(self._letters),
            "letters": [[letter.record.offset, letter.reason] for letter in shown],
            "batches": list(map(len, batches)),
        }  # fmt: skip
        self._line.send("rows", document, b"".join((*payload, *batches)))
        self._begin()

    def _batches(self) -> Iterator[bytes]:
        """Yield the dead letters as record batches, each within what their topic takes."""
        if self._batch_bytes_max is None:
            return
        builder, count = None, 0
        for letter in self._letters:
            key, value = letter.record.key, letter.record.value
            is_whole = len(key or b"") + len(value or b"") <= self._batch_bytes_max - _HEADER_BYTES
            if not is_whole:
                key = value = None
            fields = (max(letter.record.timestamp_ms, 0), key, value, _headers(letter, self._topic, is_whole=is_whole))
            if builder is not None and builder.append(count, *fields) is not None:
                count += 1
                continue
            if builder is not None:
                yield bytes(builder.build())
            builder = DefaultRecordBatchBuilder(_MAGIC, 0, 0, *_NO_PRODUCER, self._batch_bytes_max)
            builder.append(0, *fields)
            count = 1
        if builder is not None:
            yield bytes(builder.build())


def _headers(letter: _DeadLetter, topic: str, *, is_whole: bool) -> list[tuple[str, bytes]]:
    record = letter.record
    shown = {
        "reason": letter.reason, "topic": topic, "partition": str(record.partition), "offset": str(record.offset),
        **({} if is_whole else {"left-out": "key and value are too large for this topic"}),
    }  # fmt: skip
    return [(f"pqbroker.{name}", text.encode(errors="replace")) for name, text in shown.items()]
