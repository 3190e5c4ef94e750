"""Cleaning of one compacted partition in a worker; its rules are in `pq/log/cleaning.py`.

First it takes the keys of what is not cleaned yet, as many as have room; then it reads window after window of adjacent
bodies, oldest first, and makes another body of each that loses records. The broker names the bodies and replaces them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from pqbroker.pq.log.cleaning import CleanedBodies, CleanedTransactions, CleaningRules, clean, place_within
from pqbroker.pq.log.cleaning_keys import SLOT_BYTES, LastOffsets
from pqbroker.pq.log.producer_transactions import AbortedBatches
from pqbroker.pq.log.replacing_cycles import index_of
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import CRC_END, read_header
from pqbroker.storage.engine import Buffer
from pqbroker.tables.work.messages import Line, Message
from pqbroker.tables.work.stored_batches import BatchDamaged, Order, in_order, read_pieces

BODY_PIECE_BYTES: Final = 1 << 20
"""Bytes of a body in one message."""
READS_MAX: Final = 10
"""Tries to read what the broker moves to other files meanwhile."""
UNREAD_NAMED_MAX: Final = 100
"""Batches that stay because they are damaged or too large, named at most."""


_COUNTS: Final = ("records", "records_gone", "tombstones_gone", "keyless")
"""Counts of a window's records that the broker is sent with it."""


class CleaningRefused(Exception):
    """The files of a partition are moved again and again while they are to be read."""


class _Found(NamedTuple):
    """Batches as the broker named them; None: they are damaged. `next_offset`: where the next ones begin."""

    batches: Sequence[memoryview] | None
    bodies: int
    next_offset: int
    aborted: AbortedBatches | None
    """Batches among them that were aborted."""
    is_again: bool
    """True for those that are left of the bodies before, of which some were deleted."""


def clean_log(line: Line, message: Message) -> dict[str, Any]:
    """Send what the bodies of a partition become; return what the message `cleaned` says. CleaningRefused, Stopped."""
    return _LogCleaning(line, message.document).run()


class _LogCleaning:
    """One pass over one partition."""

    def __init__(self, line: Line, asked: dict[str, Any]) -> None:
        self._line = line
        self._begin: int = asked["dirty_from"]
        self._bound: int = asked["bound"]
        self._unpacked_bytes_max: int = asked["unpacked_bytes_max"]
        room = int(asked["buffer_bytes"] / SLOT_BYTES * asked["load_factor"])
        self._last = LastOffsets(max(min(room, asked["keys_max"]), 1), asked["load_factor"])
        self._times: tuple[int, int] = asked["now_ms"], asked["delete_retention_ms"]
        self._unread: set[int] = set()

    def run(self) -> dict[str, Any]:
        """Clean the partition; return what became of it."""
        self._take_keys()
        done = self._clean_windows()
        unread = sorted(self._unread)[:UNREAD_NAMED_MAX]
        return {**done, "bound": self._bound, "keys": len(self._last), "unread": unread}

    def _take_keys(self) -> None:
        """Take the keys of all batches that are not cleaned yet. The cleaning ends before the first one whose keys have
        no room."""
        offset = self._begin
        while offset < self._bound:
            found = self._read("dirty", {"offset": offset, "end_offset": self._bound})
            if found.batches is None:
                self._unread.add(offset)
            for batch in found.batches or ():
                header = read_header(batch)
                if found.aborted is not None and found.aborted.has(header):
                    continue
                if header.last_offset >= self._bound or not self._has_taken(batch):
                    self._bound = min(self._bound, header.base_offset)
                    return
            offset = found.next_offset

    def _has_taken(self, batch: memoryview) -> bool:
        """Take the keys of one batch; False: there is no room. One that is damaged has none to take, nor has one that
        alone has more than there is room for."""
        header = read_header(batch)
        if header.is_control or header.last_offset < self._begin:
            return True
        try:
            placed = place_within(batch, self._unpacked_bytes_max)
        except KafkaError:
            self._unread.add(header.base_offset)
            return True
        if self._last.take(placed.records):
            return True
        if len(self._last):
            return False
        self._unread.add(header.base_offset)
        return True

    def _clean_windows(self) -> dict[str, Any]:
        """Clean window after window, until the broker has none behind the last one; return what became of all."""
        transactions = CleanedTransactions()
        rules = CleaningRules(self._last, self._bound, *self._times, self._unpacked_bytes_max, transactions)
        due_times: set[int] = set()
        offset, is_clean, mark = 0, not self._unread, transactions.mark()
        while (found := self._read("window", {"offset": offset, "bound": self._bound})).bodies:
            offset = found.next_offset
            if not found.batches:
                is_clean = is_clean and found.batches is not None
                self._line.send("kept", dict.fromkeys(_COUNTS, 0))
                continue
            if found.is_again:
                transactions.back(mark)
            mark, transactions.aborted = transactions.mark(), found.aborted
            made = clean(found.batches, offset, rules, is_clean_before=is_clean)
            is_clean = made.is_clean
            if made.due_ms is not None:
                due_times.add(made.due_ms)
            self._unread.update(made.unread)
            self._send(found, made)
        return {"is_clean": is_clean, "due_ms": min(due_times, default=None), "emptied": transactions.emptied}

    def _send(self, found: _Found, made: CleanedBodies) -> None:
        """Send what a window has become."""
        before, after = found.batches or (), made.batches
        counts = {name: getattr(made, name) for name in _COUNTS}
        if found.bodies == 1 and len(before) == len(after) and all(map(_is_same, before, after)):
            self._line.send("kept", counts)
            return
        for piece in _pieces(after):
            self._line.send("piece", {}, piece)
        self._line.send("body", {**counts, "columns": [column.tolist() for column in index_of(after)]})

    def _read(self, kind: str, asked: dict[str, Any]) -> _Found:
        """Ask the broker for batches, and read them. CleaningRefused."""
        cause: Exception | None = None
        for _ in range(READS_MAX):
            is_verified = isinstance(cause, BatchDamaged | KafkaError)
            answer = self._line.ask(kind, {**asked, "is_verified": is_verified})
            said = answer.document
            try:
                batches = None if said["is_damaged"] else list(_batches(answer, is_verified=is_verified))
            except (OSError, BatchDamaged, KafkaError) as error:
                if is_verified and not isinstance(error, OSError):
                    batches = None
                else:
                    cause = error
                    continue
            aborted = AbortedBatches(said["aborted"]) if said.get("aborted") else None
            return _Found(batches, said["bodies"], said["next_offset"], aborted, said["is_again"])
        raise CleaningRefused(f"batches from offset {asked['offset']} on could not be read {READS_MAX} times: {cause}")


def _batches(answer: Message, *, is_verified: bool) -> Iterator[memoryview]:
    """Yield the batches that an answer of the broker names. BatchDamaged, KafkaError, OSError.

    `is_verified`: the broker has read the files; a batch that does not match its checksum was stored so.
    """
    rest = memoryview(answer.payload)
    for stretch in answer.document["stretches"]:
        data, rest = read_pieces(stretch["pieces"], rest)
        view = memoryview(data)
        for position, header in in_order(view, Order(*stretch["bounds"] or ())):
            batch = view[position : position + header.size_bytes]
            if not is_verified and crc32c(batch[CRC_END:]) != header.crc:
                raise BatchDamaged(f"the checksum of the batch at offset {header.base_offset} is wrong")
            yield batch


def _is_same(before: memoryview, after: Buffer) -> bool:
    return before is after


def _pieces(batches: Sequence[Buffer]) -> Iterator[bytes]:
    """Yield batches end to end, cut anywhere."""
    waiting = bytearray()
    for batch in batches:
        waiting += batch
        while len(waiting) >= BODY_PIECE_BYTES:
            yield bytes(waiting[:BODY_PIECE_BYTES])
            del waiting[:BODY_PIECE_BYTES]
    if waiting:
        yield bytes(waiting)
