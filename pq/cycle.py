"""One write cycle as planned: its KV request, and what it means for the partition once it is durable. Data only."""

from dataclasses import dataclass
from typing import NamedTuple

from pqbroker.pq.body import BodyIndex
from pqbroker.pq.head import HeadBlob
from pqbroker.pq.levels import Placement
from pqbroker.pq.sources import Producer
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.kv_commands import Command


class Written(NamedTuple):
    """What a Produce is answered with; `log_append_time_ms` is -1 for CreateTime, `base_offset` -1 for an old
    duplicate."""

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


class Cycle:
    """One planned KV request and what it will mean."""

    __slots__ = (
        "bodies", "commands", "duplicate_bytes", "duplicates", "end_offset", "first_offset", "forgotten", "head_blob",
        "mark", "now_ms", "outcomes", "parts", "placement", "sources", "start_offset", "stores_epoch", "touches_parts",
    )  # fmt: skip

    def __init__(self, start_offset: int, end_offset: int, mark: int, now_ms: int) -> None:
        """`mark`: position in the head's run where the cycle's batches begin."""
        self.now_ms = now_ms
        self.parts: list[Command] = []
        """Parts of large batches, each to be durable by itself before `commands`."""
        self.touches_parts = False
        """Whether it writes or wipes parts; refused, it leaves some."""
        self.commands: list[Command] = []
        self.outcomes: list[Written | KafkaError] = []
        """One for each batch of the plan, in order."""
        self.start_offset = start_offset
        self.first_offset = end_offset
        """That of the first new record."""
        self.end_offset = end_offset
        self.sources: dict[int, Producer] = {}
        self.forgotten: list[int] = []
        self.duplicates = 0
        """Records of the plan's batches that are stored already."""
        self.duplicate_bytes = 0
        self.mark = mark
        self.head_blob: HeadBlob | None = None
        self.placement: Placement | None = None
        """How `head_blob` joins the head; None: it is the new head, behind `bodies`."""
        self.bodies: list[ClosedBody] = []
        self.stores_epoch = False
