"""Batches of staged rows that were decided, and of which a piece may be lost: it becomes unreadable.

A piece that does not exist counts as written; so the batch would be ended as if its rows were in the log.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pqbroker.doctor.salvaging.losses import CellSalvage, NewBlobs
from pqbroker.pq.log.staged_rows import Decision
from pqbroker.storage.disk import index_rows
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.storage.ids import CellId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.tablet import USER_CHANNEL

_DECISIONS, _DECISIONS_END = b"t", b"u"


@dataclass(frozen=True, slots=True)
class BatchUnderWay:
    """A batch that is being written; `row_key` is that of its decision in the index of `cell`."""

    topic: str
    cell: CellId
    row_key: bytes
    decision: Decision


def read_batches(salvage: CellSalvage, prefix: bytes, topic: str, cell: CellId) -> Iterator[BatchUnderWay]:
    """Read the decisions of a PQ tablet, whose rows have the prefix; a broker finds those that are unreadable."""
    start = index_rows.ROW + prefix
    for key, row in salvage.rows.rows(start + _DECISIONS, start + _DECISIONS_END):
        try:
            entry = Entry.stored(row)
            stored = [salvage.rows.content(blob) for blob in entry.blobs()] or [entry.value]
            yield BatchUnderWay(topic, cell, key, Decision.decode(b"".join(stored)))
        except (BlobCorrupt, BlobMissing, ValueError):
            continue


class PiecesSalvage:
    """The pieces of one partition of the batches that are being written, which may be homed in other partitions."""

    def __init__(self, salvage: CellSalvage, blobs: NewBlobs, prefix: bytes, cell: CellId) -> None:
        self._salvage = salvage
        self._blobs = blobs
        self._prefix = prefix
        self._cell = cell

    def plan(self, name: str, partition: int, entries: Mapping[bytes, Entry], batches: Iterable[BatchUnderWay]) -> None:
        """Have pieces that may be lost be unreadable, and name them. `entries`: those of the partition that exist."""
        for batch in batches:
            decision = batch.decision
            lost = rows = 0
            for piece in decision.pieces:
                key = piece.key(decision.session, decision.sequence)
                if piece.partition == partition and key not in entries and self._may_be_lost(key, batch):
                    stand_in = Entry.chained(0, self._blobs.put_unreadable(USER_CHANNEL), 1)
                    self._salvage.put_row(self._prefix + key, stand_in.row)
                    lost, rows = lost + 1, rows + piece.total.row_count
            if lost:
                batch_name = f"batch {decision.sequence} of session {decision.session!r}"
                what = f"{lost} pieces of {batch_name} may be lost, {rows} rows: its commit says BATCH_DAMAGED"
                self._salvage.name("staged rows", name, what)

    def _may_be_lost(self, key: bytes, batch: BatchUnderWay) -> bool:
        """Return True unless the piece, which does not exist, is known to be written: by a round of the log, or by one
        before the log began. There is no such one if the decision is in the log. Of another cell's nobody knows."""
        known = self._salvage.lost.log_keys
        if known is None:
            return True
        is_in_log = batch.cell != self._cell or batch.row_key in known
        return is_in_log and index_rows.ROW + self._prefix + key not in known
