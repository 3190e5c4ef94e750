"""Transactions that are not over at other nodes, as the first node asks for them: what is unfinished there, and what
keeps topics from being deleted.

    unfinished  a page of parts, of all transactions or one, or those that wait for the decision of some tablets
    under_way   which topics have partitions there in which a transaction is under way
    await       wait for its end in one topic
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from pqbroker.broker.ground.other_nodes import AskedNodes, NodeSilent
from pqbroker.broker.services.commits.in_doubt import Position, UnfinishedKind, UnfinishedPart
from pqbroker.pq.transactions.stored_forms import ParticipantId, TransactionId
from pqbroker.storage.ids import TabletId

T = TypeVar("T")

UNFINISHED_PARTS_MAX: Final = 1_000
"""Parts in one answer."""


class CommitQuestion(StrEnum):
    """Questions about transactions."""

    UNFINISHED = "unfinished"
    UNDER_WAY = "under_way"
    AWAIT = "await"


class WantedParts(NamedTuple):
    """Unfinished parts that are asked for, in the order of their positions. `after`: those behind this one;
    `transaction`: of this one alone; `homes`: rows alone that wait for the decision of one of these tablets."""

    parts_max: int = UNFINISHED_PARTS_MAX
    after: Position | None = None
    transaction: TransactionId | None = None
    homes: frozenset[TabletId] | None = None

    def among(self, parts: Iterable[UnfinishedPart]) -> list[UnfinishedPart]:
        """Return the first of these parts that are wanted."""
        found = list[UnfinishedPart]()
        for part in parts:
            if self._has(part):
                found.append(part)
            if len(found) == self.parts_max:
                break
        return found

    def _has(self, part: UnfinishedPart) -> bool:
        if self.after is not None and part.position <= self.after:
            return False
        if self.homes is not None and part.kind is not UnfinishedKind.PREPARED:
            return False
        if self.homes is not None and part.home.tablet_id not in self.homes:
            return False
        return self.transaction in (None, part.transaction)

    def encode(self) -> Any:
        """Return it as JSON has it."""
        after = None
        if self.after is not None:
            participant, kind, transaction = self.after
            after = [*participant, kind.value, transaction.hex()]
        transaction_id = None if self.transaction is None else self.transaction.hex()
        return [self.parts_max, after, transaction_id, None if self.homes is None else sorted(self.homes)]

    @classmethod
    def decode(cls, told: Any) -> "WantedParts":
        """ValueError."""
        try:
            most, after, transaction, homes = told
            position = None
            if after is not None:
                tablet, partition, kind, number = after
                participant = ParticipantId(TabletId(int(tablet)), int(partition))
                position = participant, UnfinishedKind(kind), TransactionId(bytes.fromhex(number))
            return cls(
                min(int(most), UNFINISHED_PARTS_MAX),
                position,
                None if transaction is None else TransactionId(bytes.fromhex(transaction)),
                None if homes is None else frozenset(TabletId(int(home)) for home in homes),
            )
        except TypeError as bad:
            raise ValueError(f"wanted parts were expected: {bad}") from None


def encode_part(part: UnfinishedPart) -> Any:
    """Return a part as JSON has it."""
    return [
        [*part.participant], part.kind.value, part.transaction.hex(), [*part.home], part.since_ms, part.waits_for,
        part.is_home_open, part.row_count, part.byte_count, part.least_timestamp,
    ]  # fmt: skip


def decode_part(told: Any) -> UnfinishedPart:
    """ValueError, TypeError."""
    participant, kind, transaction, home, since_ms, waits_for, is_home_open, rows, size, least = told
    return UnfinishedPart(
        _participant(participant), UnfinishedKind(kind), TransactionId(bytes.fromhex(transaction)), _participant(home),
        int(since_ms), str(waits_for), bool(is_home_open), None if rows is None else int(rows),
        None if size is None else int(size), int(least),
    )  # fmt: skip


def _participant(told: Any) -> ParticipantId:
    tablet, partition = told
    return ParticipantId(TabletId(int(tablet)), int(partition))


async def parts_elsewhere(others: AskedNodes, nodes: Sequence[int], wanted: WantedParts) -> list[UnfinishedPart]:
    """Return what is unfinished at other nodes, by their numbers, in the order of positions. NodeSilent."""
    answers = await asyncio.gather(*(_parts(others, node, wanted) for node in nodes))
    return sorted((part for parts in answers for part in parts), key=lambda part: part.position)


async def _parts(others: AskedNodes, node: int, wanted: WantedParts) -> list[UnfinishedPart]:
    return await _told(others, node, CommitQuestion.UNFINISHED, wanted.encode(), lambda told: [*map(decode_part, told)])


async def under_way_elsewhere(others: AskedNodes, node: int, topic_ids: Sequence[bytes]) -> set[bytes]:
    """Return which topics have partitions at another node in which a transaction is under way. NodeSilent."""
    asked = [topic_id.hex() for topic_id in topic_ids]
    return await _told(others, node, CommitQuestion.UNDER_WAY, asked, lambda told: {*map(bytes.fromhex, told)})


async def await_elsewhere(others: AskedNodes, node: int, topic_id: bytes) -> str:
    """Wait until no transaction is under way in a topic's partitions at another node; return what is under way after
    some seconds, for people; empty: nothing. NodeSilent."""
    return await _told(others, node, CommitQuestion.AWAIT, topic_id.hex(), str)


async def _told(
    others: AskedNodes, node: int, question: CommitQuestion, asked: Any, read: Callable[[Any], T]
) -> T:  # fmt: skip
    head, _ = await others.ask_web(node, {"commits": question.value, "asked": asked}, b"")
    try:
        return read(head["told"])
    except (LookupError, TypeError, ValueError):
        raise NodeSilent(f"node {node} sent no answer that this version knows") from None
