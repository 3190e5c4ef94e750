"""Calls of the first node to one that runs tablets of a table, about sessions and the rows that are staged for them, as
they go over the peer link: both ends read them here. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pqbroker.broker.services.topics.staged_places import BatchRefused, PieceUnreadable
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.log.staged_rows import Decision, Piece
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import CellId
from pqbroker.tables.refusals import TableError

_LENGTH_BYTES: Final = 4


class SessionWork(StrEnum):
    """Work at a node on sessions of a table, and on the rows that are staged for them."""

    TAKEN = "taken"
    """Say what the tablets know of a session."""
    WRITE_SESSION = "write session"
    FORGET_SESSION = "forget session"
    LIST = "list"
    """Say which sessions of producers come behind one."""
    STAGE = "stage"
    DECISIONS = "decisions"
    MISSING = "missing"
    VERIFY = "verify"
    WRITE = "write"
    DECIDE = "decide"
    RETRACT = "retract"
    END = "end"
    CLEAR = "clear"
    FORGET = "forget"
    HOLDING = "holding"
    """Say which topics hold staged rows."""


class SessionCall(NamedTuple):
    """One call. `partitions`: how many the topic has, for the caller; `cells`: those whose partitions are meant."""

    work: SessionWork
    topic_id: bytes
    partitions: int
    cells: Sequence[CellId]
    session: str = ""
    more: Mapping[str, Any] = {}

    def encode(self) -> Any:
        return [self.work.value, self.topic_id.hex(), self.partitions, list(self.cells), self.session, dict(self.more)]

    @classmethod
    def decode(cls, head: Any) -> "SessionCall":
        """ValueError for a head that is none."""
        try:
            work, topic_id, partitions, cells, session, more = head
            read = [CellId(int(cell)) for cell in cells]
            return cls(SessionWork(work), bytes.fromhex(topic_id), int(partitions), read, str(session), dict(more))
        except (TypeError, ValueError) as bad:
            raise ValueError(f"a call about sessions was expected: {bad!r}") from None


def encode_batch(batch: SessionBatch | None) -> Any:
    return None if batch is None else batch.encode().hex()


def decode_batch(told: Any) -> SessionBatch | None:
    """ValueError, TypeError for what is none."""
    return None if told is None else SessionBatch.decode(bytes.fromhex(told))


def encode_taken(taken: Mapping[int, SessionBatch]) -> Any:
    return [[index, encode_batch(batch)] for index, batch in taken.items()]


def decode_taken(told: Any) -> dict[int, SessionBatch]:
    """ValueError, TypeError for what is none."""
    return {int(index): SessionBatch.decode(bytes.fromhex(batch)) for index, batch in told}


def encode_pieces(pieces: Iterable[Piece]) -> bytes:
    """Return pieces as the body of a call or an answer. Of many this takes milliseconds."""
    return "\n".join(piece.name for piece in pieces).encode()


def decode_pieces(body: bytes) -> list[Piece]:
    """ValueError for what is none."""
    return [Piece.named(name) for name in body.decode("ascii").split("\n")] if body else []


def encode_decisions(decisions: Iterable[Decision]) -> bytes:
    """Return decisions as the body of a call or an answer. Of many pieces this takes milliseconds."""
    stored = [one.encode() for one in decisions]
    return b"".join(len(one).to_bytes(_LENGTH_BYTES, "big") + one for one in stored)


def decode_decisions(body: bytes) -> list[Decision]:
    """ValueError for what is none."""
    found, at = list[Decision](), 0
    while at < len(body):
        end = at + _LENGTH_BYTES + int.from_bytes(body[at : at + _LENGTH_BYTES], "big")
        if end > len(body):
            raise ValueError(f"decisions of {end} bytes were expected, and {len(body)} came")
        found.append(Decision.decode(body[at + _LENGTH_BYTES : end]))
        at = end
    return found


SESSION_REFUSALS: Final = (KafkaError, TableError, BatchRefused, PieceUnreadable, CommitRefused)


def encode_refusal(refusal: BaseException) -> Any:
    """Return the answer to a call that is refused with one of `SESSION_REFUSALS`."""
    if isinstance(refusal, KafkaError):
        return {"kafka": [refusal.code, refusal.message]}
    if isinstance(refusal, PieceUnreadable):
        return {"unreadable": [refusal.piece.name, refusal.cause]}
    if isinstance(refusal, TableError | BatchRefused):
        return {"error": [refusal.code, refusal.message, refusal.cure]}
    return {"refused": str(refusal)}


def decode_told(answer: Any) -> Any:
    """Return what an answer tells. What the node refused with: KafkaError, TableError, PieceUnreadable, CommitRefused.
    ValueError for what is no answer."""
    try:
        ((kind, told),) = answer.items()
        if kind == "told":
            return told
        refusal = _REFUSED[kind](told)
    except (AttributeError, LookupError, TypeError, ValueError) as bad:
        raise ValueError(f"an answer about sessions was expected: {bad!r}") from None
    raise refusal


def _kafka(told: Any) -> Exception:
    code, message = told
    return KafkaError(ErrorCode(code), str(message))


def _table(told: Any) -> Exception:
    code, message, cure = map(str, told)
    return TableError(code, message, cure)


def _unreadable(told: Any) -> Exception:
    name, cause = told
    return PieceUnreadable(Piece.named(name), str(cause))


def _commit(told: Any) -> Exception:
    return CommitRefused(str(told))


_REFUSED: Final[Mapping[str, Callable[[Any], Exception]]] = {
    "kafka": _kafka, "error": _table, "unreadable": _unreadable, "refused": _commit,
}  # fmt: skip
