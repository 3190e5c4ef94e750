"""The book of a story: every record that was sent, by its number, and what each answer of the broker has it owe.

An answer counts from the moment it was sent on: `owed` says what is owed by the first so many answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pqbroker.pq.log.sessions import Fence

TopicPartition = tuple[str, int]
"""A topic and a partition."""
SOMEWHERE = -1
"""In the place of an offset: the answer did not say it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A record, where it was sent to. `content`: a value as bytes, or a row by its columns."""

    place: TopicPartition
    content: bytes | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Staged:
    """A piece that waits for its commit, and the numbers of its rows."""

    name: str
    fence: Fence
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that is whole. It holds what the first `answers` answers said at least."""

    directory: str
    answers: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Promises of one answer. `used`: pieces whose commit may be asked for from now on, and then they go."""

    names: Sequence[str] = ()
    written: Mapping[int, int] = field(default_factory=dict)
    """Offsets by number."""
    timestamps: Mapping[int, int] = field(default_factory=dict)
    """Commit timestamps by number."""
    offsets: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """A group's offset in a place; later ones are greater."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """The last sequence of a session."""
    staged: Sequence[Staged] = ()
    used: Sequence[Staged] = ()
    backups: Sequence[Backup] = ()
    refused: Sequence[int] = ()
    """Numbers of records that are nowhere from now on."""


@dataclass(slots=True)
class Owed:
    """Promises of all answers, added up."""

    names: set[str] = field(default_factory=set)
    written: dict[int, int] = field(default_factory=dict)
    timestamps: dict[int, int] = field(default_factory=dict)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    staged: set[Staged] = field(default_factory=set)
    backups: list[Backup] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)

    def take(self, answer: Answer) -> None:
        self.names.update(answer.names)
        self.written.update(answer.written)
        self.timestamps.update(answer.timestamps)
        self.offsets.update(answer.offsets)
        self.batches.update(answer.batches)
        self.staged |= set(answer.staged)
        self.staged -= set(answer.used)
        self.backups += answer.backups
        self.refused.update(answer.refused)


@dataclass(slots=True)
class Book:
    """Requests and their answers, in order. Only what was sent may be found, each record once."""

    sent: dict[int, Sent] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    transactions: list[Sequence[int]] = field(default_factory=list)
    """Numbers of records that are all there, or none of them."""

    def send(self, place: TopicPartition, content: bytes | Mapping[str, Any]) -> None:
        """Note a record, whose number is the next."""
        self.sent[len(self.sent)] = Sent(place, content)

    def owed(self, answers: int | None = None) -> Owed:
        """Return the promises of the first answers, or of all."""
        owed = Owed()
        for answer in self.answers[:answers]:
            owed.take(answer)
        return owed
