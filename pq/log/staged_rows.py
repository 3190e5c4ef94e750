"""Rows that are staged for a batch of a session, in pieces and by several writers, and then committed by one request.

    piece     staged --named by a decision--> decided --its rows are in the log--> gone
              staged --never named----------> gone after a while
    batch     unknown --decide--> decided --every piece is written--> known to its session, with its total

A piece lies under a key of its own in the partition that its rows are for, and goes in the commit that puts the rows
into the log: either it exists, or its rows do. A decision lies in the partition of its first piece. The total of a
batch says which rows it has, however they were split: it is what a batch that comes again is compared by.
"""

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

_DIGESTS = 1 << 128
_SESSION_BYTES = 16
_VERSION = 1
_STAGED_KEY = re.compile(
    rb"s([0-9]{10})_([0-9a-f]{32})_([0-9]{20})_([0-9]{10})_([0-9a-f]{32})_([0-9a-f]{16})"
).fullmatch
_NAME = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})\.([0-9a-f]{32})\.([0-9a-f]{16})").fullmatch
_DECISION_KEY = re.compile(rb"t([0-9]{10})_[0-9a-f]{32}_[0-9]{20}").fullmatch


class Total(NamedTuple):
    """The rows of a batch: how many, and the sum of their digests modulo 2^128, in which their order has no part."""

    row_count: int
    digest: int

    def plus(self, other: "Total") -> "Total":
        return Total(self.row_count + other.row_count, (self.digest + other.digest) % _DIGESTS)


NO_ROWS = Total(0, 0)


def total_of(rows: Iterable[tuple[bytes | None, bytes | None]], tablet_index: int | None) -> Total:
    """Return the total of rows as the keys and values of their records, which name a tablet or none."""
    count = digest = 0
    place = b"" if tablet_index is None else b"%d" % tablet_index
    for key, value in rows:
        row = b"%s|%d|%s%s" % (place, -1 if key is None else len(key), key or b"", value or b"")
        digest += int.from_bytes(blake2b(row, digest_size=16).digest(), "big")
        count += 1
    return Total(count, digest % _DIGESTS)


def session_digest(session: str) -> str:
    """Return what stands for a session's name in keys: 32 hexadecimal digits."""
    return blake2b(session.encode(), digest_size=_SESSION_BYTES).hexdigest()


class Piece(NamedTuple):
    """Rows that were staged in one partition; `number` tells it from others, in 16 hexadecimal digits."""

    partition: int
    total: Total
    number: str

    @property
    def name(self) -> str:
        """The name that clients know it by."""
        return f"{self.partition}.{self.total.row_count}.{self.total.digest:032x}.{self.number}"

    @classmethod
    def named(cls, name: str) -> "Piece":
        """ValueError for what is no name."""
        found = _NAME(name)
        if found is None:
            raise ValueError(f"{name[:100]!r} is no name of a piece")
        partition, count, digest, number = found.groups()
        return cls(int(partition), Total(int(count), int(digest, 16)), number)

    def key(self, session: str, sequence: int) -> bytes:
        """The key of the piece as part of a batch."""
        count, digest = self.total
        name = f"_{session_digest(session)}_{sequence:020}_{count:010}_{digest:032x}_{self.number}"
        return b"s%010d%s" % (self.partition, name.encode())


class Decision(NamedTuple):
    """A batch whose rows are being written."""

    session: str
    sequence: int
    total: Total
    pieces: Sequence[Piece]

    @property
    def home(self) -> int:
        """The partition that has the decision."""
        return self.pieces[0].partition

    @property
    def key(self) -> bytes:
        return b"t%010d_%s_%020d" % (self.home, session_digest(self.session).encode(), self.sequence)

    def encode(self) -> bytes:
        names = [piece.name for piece in self.pieces]
        document = {"version": _VERSION, "session": self.session, "sequence": self.sequence, "pieces": names}
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, stored: bytes) -> "Decision":
        """ValueError for what no `encode` of this version writes."""
        document = json.loads(stored)
        if not isinstance(document, dict) or document.get("version") != _VERSION:
            raise ValueError("it is no decision of this version")
        session, sequence, names = (document.get(name) for name in ("session", "sequence", "pieces"))
        if not isinstance(session, str) or not isinstance(sequence, int) or not isinstance(names, list) or not names:
            raise ValueError("its fields are no decision's")
        return decision(session, sequence, [Piece.named(str(name)) for name in names])


def total_of_pieces(pieces: Iterable[Piece]) -> Total:
    """Return the total of the rows of pieces."""
    total = NO_ROWS
    for piece in pieces:
        total = total.plus(piece.total)
    return total


def decision(session: str, sequence: int, pieces: Sequence[Piece]) -> Decision:
    """Decide for these pieces, at least one, in this order."""
    return Decision(session, sequence, total_of_pieces(pieces), tuple(pieces))


def staged_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of all pieces that are staged in a partition."""
    return b"s%010d_" % partition, b"s%010d`" % partition


def staged_before(partition: int, session: str, sequence: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of the pieces of a session's batches up to `sequence`."""
    prefix = b"s%010d_%s_" % (partition, session_digest(session).encode())
    return prefix, prefix + b"%020d" % (sequence + 1)


def decision_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of the decisions in a partition."""
    return b"t%010d_" % partition, b"t%010d`" % partition


def batch_of(key: bytes) -> bytes:
    """Return what the keys of a batch's pieces and of its decision have in common: session and sequence."""
    return key[12:65]


def check_key(key: bytes) -> None:
    """ValueError for what is no key of a piece or of a decision."""
    if _STAGED_KEY(key) is None and _DECISION_KEY(key) is None:
        raise ValueError("it is no key of staged rows")
