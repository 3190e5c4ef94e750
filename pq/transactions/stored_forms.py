"""Stored forms of a transaction, pure: the rows that a participant has prepared, and the decision about them.

Prepared rows, a value of the participant's own tablet:

    0   4 bytes   magic "PQT1"; "PQT2" where the tablet with the decision is a coordinator, which earlier releases do
                  not look into: they refuse the rows
    4   16 bytes  transaction
    20  uint64    tablet of the participant that has the decision, if there is one
    28  uint32    its partition
    32  uint64    least timestamp: that of the commit is greater
    40  uint64    time when they were prepared, milliseconds since 1970
    48  rows, in the form of the participant's kind

A decision, a value of one participant's tablet:

    0   4 bytes   magic "PQD1"
    4   16 bytes  transaction
    20  uint64    timestamp of the commit
    28  uint64    time of the decision, milliseconds since 1970
    36  16 bytes  digest of what the client asked for
    52  uint32    rows written
    56  uint32    participants that have prepared rows, at most 1000
    60  of each: uint64 tablet, uint32 partition

Numbers are little endian. There is no decision to abort: prepared rows without a decision are dropped.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, NewType

from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.scheme_layout import FIRST_TABLET_ID

TransactionId = NewType("TransactionId", bytes)
"""16 random bytes."""

TRANSACTION_BYTES: Final = 16
DIGEST_BYTES: Final = 16
PARTICIPANTS_MAX: Final = 1000
_PREPARED_MAGIC = b"PQT1"
_PREPARED_FOR_COORDINATOR_MAGIC = b"PQT2"
_DECISION_MAGIC = b"PQD1"
_PREPARED = Struct("<4s16sQIQQ")
_DECISION = Struct("<4s16sQQ16sII")
_PARTICIPANT = Struct("<QI")


class ParticipantId(NamedTuple):
    """A partition of a PQ tablet, or a sorted tablet, whose partition is 0."""

    tablet_id: TabletId
    partition: int = 0


class PreparedHead(NamedTuple):
    """Facts of prepared rows that are known without looking at the rows."""

    transaction: TransactionId
    home: ParticipantId
    """The participant that has the decision, if there is one."""
    least_timestamp: int
    prepared_ms: int

    def encode(self) -> bytes:
        """Return what stands before the rows."""
        home = self.home
        return _PREPARED.pack(
            _magic_for(home), self.transaction, home.tablet_id, home.partition, self.least_timestamp, self.prepared_ms
        )


class PreparedRows(NamedTuple):
    """Rows that are durable and invisible until the decision about them is known."""

    head: PreparedHead
    rows: bytes

    @classmethod
    def decode(cls, value: bytes) -> "PreparedRows":
        """ValueError for what is no prepared rows."""
        if len(value) < _PREPARED.size:
            raise ValueError(f"{len(value)} bytes are less than the head of prepared rows")
        magic, transaction, tablet, partition, least_timestamp, prepared_ms = _PREPARED.unpack_from(value)
        home = ParticipantId(TabletId(tablet), partition)
        if magic != _magic_for(home):
            raise ValueError(f"prepared rows begin with {magic.hex()}, and tablet {tablet} has their decision")
        head = PreparedHead(TransactionId(transaction), home, least_timestamp, prepared_ms)
        return cls(head, value[_PREPARED.size :])


def _magic_for(home: ParticipantId) -> bytes:
    return _PREPARED_MAGIC if home.tablet_id >= FIRST_TABLET_ID else _PREPARED_FOR_COORDINATOR_MAGIC


class CommitDecision(NamedTuple):
    """A transaction that is committed; while it has participants, some may not have written their rows yet."""

    transaction: TransactionId
    timestamp: int
    decided_ms: int
    digest: bytes
    row_count: int
    participants: Sequence[ParticipantId]

    @property
    def finished(self) -> "CommitDecision":
        """Return what stays of it for a client that sends the commit again."""
        return self._replace(participants=())

    def encode(self) -> bytes:
        parts = [
            _DECISION.pack(
                _DECISION_MAGIC, self.transaction, self.timestamp, self.decided_ms, self.digest, self.row_count,
                len(self.participants),
            )
        ]  # fmt: skip
        return b"".join(parts + [_PARTICIPANT.pack(*each) for each in self.participants])

    @classmethod
    def decode(cls, value: bytes) -> "CommitDecision":
        """ValueError for what is no decision."""
        if len(value) < _DECISION.size:
            raise ValueError(f"{len(value)} bytes are less than a decision")
        magic, transaction, timestamp, decided_ms, digest, row_count, count = _DECISION.unpack_from(value)
        if magic != _DECISION_MAGIC or count > PARTICIPANTS_MAX:
            raise ValueError(f"a decision begins with {magic.hex()} and has {count} participants")
        if len(value) != _DECISION.size + count * _PARTICIPANT.size:
            raise ValueError(f"a decision with {count} participants has {len(value)} bytes")
        pairs = _PARTICIPANT.iter_unpack(value[_DECISION.size :])
        participants = tuple(ParticipantId(TabletId(tablet), partition) for tablet, partition in pairs)
        return cls(TransactionId(transaction), timestamp, decided_ms, digest, row_count, participants)
