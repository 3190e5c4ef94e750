"""One write cycle as planned: its KV request, and what it means for the partition once it is durable. Data only.

The usual request is keys to put and keys that go; one that also moves or cuts blobs has commands besides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pqbroker.pq.log.body import BodyIndex, BodyName
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.head import HeadBlob
from pqbroker.pq.log.levels import Placement
from pqbroker.pq.log.producer_transactions import TransactionsChange
from pqbroker.pq.log.producers import Producer
from pqbroker.pq.log.row_facts import FactsChange, RowFacts
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.owned_keys import Put, as_commands
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Told

PlannedBatch = tuple[memoryview, BatchHeader]


class Written(NamedTuple):
    """The answer to a Produce; `log_append_time_ms` is -1 for CreateTime, `base_offset` -1 for an old duplicate."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class ClosedBody:
    """A body blob that a cycle makes: records [offset, end), from position `start` of the head's run."""

    offset: int
    end: int
    start: int
    size: int
    index: BodyIndex


class ReplacedBodies(NamedTuple):
    """Adjacent bodies, oldest first, of which a cycle makes one with all their offsets; its size and greatest
    timestamp."""

    names: Sequence[BodyName]
    size: int
    max_timestamp: int


class JointCommit(Protocol):
    """One request of the cycles of several partitions: all of them are durable, or none."""

    def commit(self, kv: KeyValueTablet, cycle: "Cycle", told: Told) -> None:
        """Commit a cycle that is ready and whose parts are durable. `told` gets its outcome, never within this call."""

    def give_up(self, why: KafkaError) -> None:
        """Refuse the commit because of a cycle that is not durable yet; the other cycles are rolled back."""


class Cycle:
    """One planned KV request and what it will mean."""

    __slots__ = (
        "bodies", "cleaned", "commands", "duplicate_bytes", "duplicates", "end_offset", "facts", "first_offset",
        "forgotten", "forgotten_sessions", "gone", "head_blob", "joint", "mark", "now_ms", "outcomes", "parts",
        "placement", "producers", "puts", "replaced", "rows", "sessions", "start_offset", "stores_epoch",
        "touches_parts", "transactions",
    )  # fmt: skip

    def __init__(self, start_offset: int, end_offset: int, mark: int, now_ms: int) -> None:
        """`mark`: position in the head's run where the cycle's batches begin."""
        self.now_ms = now_ms
        self.parts: list[Command] = []
        """Parts of large batches, each to be durable by itself before the request."""
        self.touches_parts = False
        """True if the request writes or wipes parts: if it is refused, some may remain."""
        self.puts: list[Put] = []
        self.gone: list[bytes] = []
        """Keys."""
        self.commands: list[Command] = []
        self.outcomes: list[Written | KafkaError] = []
        """One for each batch of the plan, in order."""
        self.start_offset = start_offset
        self.first_offset = end_offset
        """Offset of the first new record."""
        self.end_offset = end_offset
        self.producers: dict[int, Producer] = {}
        self.forgotten: list[int] = []
        self.sessions: dict[str, SessionBatch] = {}
        self.forgotten_sessions: list[str] = []
        self.rows: RowFacts | None = None
        """Facts of the new records; None: the partition keeps none."""
        self.facts: FactsChange | None = None
        self.joint: JointCommit | None = None
        """Commit of several partitions that includes this request; None: the request is committed alone."""
        self.duplicates = 0
        """Records of the plan's batches that are stored already."""
        self.duplicate_bytes = 0
        self.mark = mark
        self.head_blob: HeadBlob | None = None
        self.placement: Placement | None = None
        """Change that `head_blob` makes to the head; None: it is the new head, behind `bodies`."""
        self.bodies: list[ClosedBody] = []
        self.replaced: Sequence[ReplacedBodies] = ()
        self.cleaned: CleanedLog | None = None
        """Last cleaning of the log from now on; None: the same one as before."""
        self.stores_epoch = False
        self.transactions: TransactionsChange | None = None
        """None: no Kafka transaction begins or ends."""

    @property
    def made_blobs(self) -> list[tuple[int, int]]:
        """Offset and end of each blob that the cycle makes."""
        made = [(body.offset, body.end) for body in self.bodies]
        return made if self.head_blob is None else [*made, (self.head_blob.offset, self.head_blob.end)]

    @property
    def is_empty(self) -> bool:
        """Return True if nothing has to be stored."""
        return not (self.puts or self.gone or self.commands)

    def store(self, key: bytes, row: bytes) -> None:
        """Put a row."""
        self.puts.append((key, (row,), len(row), True))

    def as_commands(self) -> list[Command]:
        """The whole request as commands."""
        return [*as_commands(self.puts, self.gone), *self.commands]
