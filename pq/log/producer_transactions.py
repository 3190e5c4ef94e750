"""Kafka's transactions of producers in one partition: which are open, which were aborted. Pure.

Their batches lie in the log from the start. A reader of committed records sees what lies before the first open one, and
leaves out batches of aborted ones. Not to be mixed up with transactions over tables (pq/transactions), whose rows come
into the log once they are committed.

    no transaction  a transactional batch  open         the last stable offset stays at its first record
    open            more batches           open
    open            a commit marker        none         its records are seen
    open            an abort marker        none         a span of the log, noted by its marker's offset, is not seen

What is open is stored in its producer's row; a span has a row of its own, which goes with the log before it.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from pqbroker.pq.log.keys import OFFSET_MAX
from pqbroker.pq.log.producers import Producer, TransactionalState
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import CONTROL, TRANSACTIONAL, BatchHeader
from pqbroker.storage.unreadable import check_version

_ROW = Struct(">Bqqq")
_VERSION = 1


class AbortedSpan(NamedTuple):
    """An aborted transaction: the batches of a producer from `first_offset` to its marker.

    `stable_offset`: the last stable offset behind the marker. Spans with later markers begin there or later.
    """

    marker_offset: int
    producer_id: int
    first_offset: int
    stable_offset: int

    def encode(self) -> bytes:
        """Return the stored form; the marker's offset is in the key."""
        return _ROW.pack(_VERSION, self.producer_id, self.first_offset, self.stable_offset)

    @classmethod
    def decode(cls, marker_offset: int, stored: bytes) -> "AbortedSpan":
        """ValueError for what no `encode` of this version writes."""
        check_version(stored, _VERSION)
        if len(stored) != _ROW.size:
            raise ValueError(f"it has {len(stored)} bytes, not {_ROW.size}")
        span = cls(marker_offset, *_ROW.unpack(stored)[1:])
        if span.producer_id < 0 or not 0 <= span.first_offset < marker_offset or span.stable_offset < 0:
            raise ValueError(f"it says of itself {span}")
        return span


class AbortedSpans:
    """The aborted transactions of a log, in the order of their markers. Some may come behind them; none goes.

    A reader that awaits the log takes the spans before, and leaves out by them: meanwhile a cleaner, or a trim, may
    have given the log fewer.
    """

    __slots__ = ("_columns",)

    def __init__(self, spans: Iterable[AbortedSpan] = ()) -> None:
        self._columns: tuple[array[int], ...] = (array("q"), array("q"), array("q"), array("q"))
        for span in spans:
            self.append(span)

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, span: AbortedSpan) -> None:
        for column, number in zip(self._columns, span, strict=True):
            column.append(number)

    def between(self, offset: int, end_offset: int) -> list[AbortedSpan]:
        """Return the spans that have records in [offset, end_offset), by first offset."""
        first, last = self._bounds(offset, end_offset)
        firsts = self._columns[2][first:last]
        numbers = [number for number, begin in enumerate(firsts, first) if begin < end_offset]
        found = [AbortedSpan(*[column[number] for column in self._columns]) for number in numbers]
        found.sort(key=_first_offset)
        return found

    def has_between(self, offset: int, end_offset: int) -> bool:
        """Return True if `between` finds any."""
        first, last = self._bounds(offset, end_offset)
        return any(begin < end_offset for begin in self._columns[2][first:last])

    def end_of(self, offset: int, end_offset: int, count_max: int) -> int:
        """Return the end of a window from `offset` to `end_offset` at most, in which `count_max` transactions end."""
        markers = self._columns[0]
        number = bisect_left(markers, offset) + count_max
        return min(markers[number], end_offset) if number < len(markers) else end_offset

    def _bounds(self, offset: int, end_offset: int) -> tuple[int, int]:
        """Return the numbers of the spans that may have records in [offset, end_offset): their markers lie behind the
        offset, and no transaction was open before the end once the last one had ended."""
        first = bisect_left(self._columns[0], offset)
        return first, bisect_left(self._columns[3], end_offset, first) + 1

    def among(self, marker_offsets: Iterable[int]) -> list[int]:
        """Return those of the offsets that are markers of spans."""
        markers = self._columns[0]
        found = ((bisect_left(markers, offset), offset) for offset in marker_offsets)
        return [offset for number, offset in found if number < len(markers) and markers[number] == offset]

    def without(self, marker_offsets: Iterable[int]) -> "AbortedSpans | None":
        """Return those but the ones with these markers, which exist; None: that is all. They end their searches as
        before: only spans that stay are found."""
        dropped = {bisect_left(self._columns[0], offset) for offset in marker_offsets}
        kept = [number for number in range(len(self)) if number not in dropped]
        return self._of(array("q", [column[number] for number in kept]) for column in self._columns)

    def since(self, offset: int) -> "AbortedSpans | None":
        """Return those whose markers lie at an offset or behind it; None: none does."""
        count = self.count_before(offset)
        return self._of(column[count:] for column in self._columns) if count else self

    def count_before(self, offset: int) -> int:
        """Return how many markers lie before an offset."""
        return bisect_left(self._columns[0], offset)

    def _of(self, columns: "Iterable[array[int]]") -> "AbortedSpans | None":
        made = AbortedSpans()
        made._columns = tuple(columns)
        return made if len(made) else None


class AbortedBatches:
    """Tells the batches of some aborted transactions from others."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Iterable[Sequence[int]]) -> None:
        """`spans`: marker's offset, producer id and first offset of each, in the order of a producer's markers, or by
        first offset: of one producer that is the same."""
        self._spans: Mapping[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for marker_offset, producer_id, first_offset, *_ in spans:
            markers, firsts = self._spans[producer_id]
            markers.append(marker_offset)
            firsts.append(first_offset)

    def has(self, header: BatchHeader) -> bool:
        """Return True if the batch was aborted; its marker is not."""
        if header.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL or header.producer_id not in self._spans:
            return False
        markers, firsts = self._spans[header.producer_id]
        number = bisect_left(markers, header.base_offset)
        return number < len(markers) and firsts[number] <= header.base_offset

    def have_end(self, header: BatchHeader) -> bool:
        """Return True if the batch is the marker that ends one of the transactions."""
        if header.producer_id not in self._spans:
            return False
        markers, _ = self._spans[header.producer_id]
        number = bisect_left(markers, header.base_offset)
        return number < len(markers) and markers[number] == header.base_offset


class TransactionsChange:
    """The changes that a write cycle makes: transactions that its batches open, those that its markers end, or aborted
    ones that a cleaner has emptied."""

    __slots__ = ("aborted", "dropped", "ended", "opened")

    def __init__(self) -> None:
        self.opened: dict[int, int] = {}
        """First offsets, by producer id."""
        self.ended: set[int] = set()
        """Producers whose transactions markers of the cycle end."""
        self.aborted: list[AbortedSpan] = []
        self.dropped: Sequence[int] = ()
        """Offsets of the markers of aborted transactions that have no batch left."""


def aborted_between(spans: AbortedSpans | None, offset: int, end_offset: int) -> list[AbortedSpan]:
    """Return the aborted transactions that have records in [offset, end_offset), by first offset. `spans`: those of the
    log before it was read."""
    return [] if spans is None else spans.between(offset, end_offset)


class ProducerTransactions:
    """The transactions of one partition."""

    __slots__ = ("aborted", "open")

    def __init__(self, producers: Iterable[tuple[int, Producer]], aborted: Sequence[AbortedSpan]) -> None:
        found = [
            (state.transactional.open_offset, producer_id)
            for producer_id, state in producers
            if state.transactional is not None and state.transactional.open_offset >= 0
        ]
        self.open: dict[int, int] = {producer_id: offset for offset, producer_id in sorted(found)}
        """First offsets by producer id, the least first."""
        self.aborted: AbortedSpans | None = AbortedSpans(aborted) if aborted else None
        """None: the log has none, as most. To be taken before the log is read, where that may be awaited."""

    @property
    def first_open(self) -> int:
        """Return the first offset of an open transaction, of which there is one."""
        return next(iter(self.open.values()))

    def stable_without(self, producer_ids: Container[int], end_offset: int) -> int:
        """Return the last stable offset once the transactions of some producers are over; `end_offset`: of the log
        then."""
        return next((offset for each, offset in self.open.items() if each not in producer_ids), end_offset)

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedSpan]:
        """Return the aborted transactions that have records in [offset, end_offset), by first offset."""
        return aborted_between(self.aborted, offset, end_offset)

    def apply(self, change: TransactionsChange) -> None:
        """The change is durable."""
        self.open.update(change.opened)
        for producer_id in change.ended:
            self.open.pop(producer_id, None)
        for span in change.aborted:
            if self.aborted is None:
                self.aborted = AbortedSpans()
            self.aborted.append(span)
        if change.dropped and self.aborted is not None:
            self.aborted = self.aborted.without(change.dropped)

    def apply_trim(self, first_kept: int) -> None:
        """Forget what lies before the first offset that is still stored."""
        if self.aborted is not None:
            self.aborted = self.aborted.since(first_kept)


def check_batch(state: Producer | None, header: BatchHeader) -> None:
    """Check that a batch of a producer is in its open transaction, if there is one. INVALID_TXN_STATE."""
    if state is not None and state.is_open and not header.attributes & TRANSACTIONAL:
        text = f"producer {header.producer_id} has an open transaction here, and the batch is not transactional"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)


def opened(state: Producer, base_offset: int, now_ms: int) -> Producer:
    """The state of a producer whose batch at an offset has opened a transaction."""
    known = state.transactional or TransactionalState()
    return state._replace(transactional=known._replace(open_offset=base_offset, open_ms=now_ms))


def check_span(end_offset: int, span: AbortedSpan) -> AbortedSpan:
    """Return a stored span that lies before the end of its log. ValueError."""
    if not span.marker_offset < end_offset <= OFFSET_MAX:
        raise ValueError(f"its marker is at offset {span.marker_offset}, behind the end {end_offset}")
    return span


def _first_offset(span: AbortedSpan) -> int:
    return span.first_offset
