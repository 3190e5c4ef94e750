"""Participants of a commit over several tablets: partitions of topics, and sorted tablets.

    part:   entered --its turn--> holding --commands, durable--> visible              (beside the decision)
                                          --commands, durable--> prepared             (elsewhere)
            entered, holding --leave--> gone
    rows:   prepared --finish(timestamp)--> visible
                     --finish(None)-------> gone

A part that holds keeps other writes out: of the whole partition, or of the whole tablet. Prepared rows keep out writes
of the partition, or of their keys. They outlive the tablet's instance and the process.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import BatchBeside, TabletCommands
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import TabletStorage

OnTurn = Callable[[BaseException | None], None]
"""Called once: None, the part holds now; or the reason why it never will (CommitRefused, ShardLost, KafkaError,
TableError)."""


class LookAgain(Exception):
    """Something has changed that a part has not looked at: look ahead again with new parts, and try again."""


class Participant(Protocol):
    """One partition or sorted tablet as transactions see it, in the instance that runs now."""

    @property
    def participant_id(self) -> ParticipantId: ...

    @property
    def name(self) -> str:
        """Return what texts for people call it."""
    @property
    def storage(self) -> TabletStorage:
        """Return the storage of the instance that runs."""
    waits_for: str
    """The thing that prepared rows wait for, as texts for people name it; empty: nothing is known of it."""

    @property
    def is_known(self) -> bool:
        """Return True if `prepared` and `decisions` are all that is stored: its cell is open, and it was read."""
    @property
    def is_lost(self) -> bool:
        """Return True if the instance that runs can store nothing more."""
    @property
    def prepared(self) -> Mapping[TransactionId, PreparedHead]:
        """Return what is prepared and durable."""
    def prepared_bytes(self, transaction: TransactionId) -> int:
        """Return the size of what a transaction has prepared, as it is stored."""

    @property
    def decisions(self) -> Mapping[TransactionId, CommitDecision]:
        """Return the durable decisions of which it is the home."""

    def deciding(self, transaction: TransactionId, timestamp: int) -> None:
        """Note the timestamp of a commit that it takes part in, be it prepared or by a part that holds: called in the
        turn in which the timestamp is given, before the decision's request leaves. Readers at or above it wait."""

    def finish(self, transaction: TransactionId, timestamp: int | None) -> Outcome[None]:
        """Write prepared rows at the commit's timestamp, or drop them where it is None; done when they are visible, or
        gone. Nothing prepared of the transaction: done at once. CommitRefused, ShardLost, KafkaError: they stay."""

    def take_decision(self, decision: CommitDecision) -> None:
        """A decision is durable in this tablet."""

    def drop_decisions(self, transactions: Sequence[TransactionId]) -> Outcome[None]:
        """Remove decisions that nobody asks for any more. CommitRefused, ShardLost."""


class KeyedParticipant(Participant, Protocol):
    """A participant over a KV tablet: every one that has rows."""

    @property
    def kv(self) -> KeyValueTablet:
        """Return the keys of the instance that runs."""

    def decision_command(self, decision: CommitDecision) -> Command:
        """Return what stores a decision in this tablet, in place of an earlier one of the transaction."""


@runtime_checkable
class TransactedTablet(Protocol):
    """A tablet whose rows may be part of a transaction."""

    def participant(self, partition: int) -> Participant | None:
        """Return the participant of a partition, 0 in a sorted tablet; None: it has none of that number."""


class CommitPart(Protocol):
    """The rows of one participant in one commit."""

    @property
    def participant(self) -> KeyedParticipant: ...
    @property
    def row_count(self) -> int: ...

    async def look_ahead(self) -> None:
        """Read what `refusal` needs to know, before `enter`."""

    def enter(self, turn: OnTurn) -> None:
        """Take a place in the queue of the participant's writes. Parts of a commit enter in one turn of the loop."""

    async def examine(self) -> None:
        """Look at many rows, some in each turn of the loop, once the part holds: `refusal` knows then."""

    def refusal(self) -> BaseException | None:
        """Return why the rows cannot be written, asked while the part holds; None: they can."""

    async def encode(self, timestamp: int | None) -> None:
        """Make ready what `commands` returns, in a thread where it is much. Meanwhile the part may be lost or held, so
        `refusal` has to be asked again in the turn of `commands`."""

    def commands(self, timestamp: int | None) -> Sequence[Command]:
        """Return what writes the rows at the commit's timestamp; None: what prepares them, as `prepares` says.
        CommitRefused: the participant was lost since the part's turn."""

    def beside(self) -> Sequence[TabletCommands]:
        """Return what the same request writes to other tablets of the cell, after `commands`."""

    def prepares(self, head: PreparedHead) -> None:
        """Say before `enter` that the rows are to be prepared, since the decision is made elsewhere."""

    def told(self, error: BaseException | None) -> Outcome[None]:
        """The request with the commands has ended; done when the rows are visible, or prepared. The part holds no
        more, but for what is prepared."""

    def leave(self) -> None:
        """Give the place up: before the commands were sent. Called twice it does nothing."""


class SentRows(NamedTuple):
    """The rows of one participant, as they go to the node that runs it. `start`: timestamp at which their transaction
    began to read; None: it did not. `stored`: the rows as their participant stores them."""

    participant: ParticipantId
    start: int | None
    stored: bytes | memoryview


@runtime_checkable
class SentPart(CommitPart, Protocol):
    """A part whose participant another node may run: it is prepared there by what `sent` returns."""

    async def sent(self) -> SentRows:
        """Return the rows for the other node."""

    def taken(self, position: int) -> None:
        """The other node has prepared the rows, and returned the `position` of its part."""


class ReceivedPart(CommitPart, Protocol):
    """A part that another node has sent."""

    @property
    def position(self) -> int:
        """Return the offset that the first row will have, once the part has had its turn; 0 where rows have none."""


@runtime_checkable
class ReceivingTablet(Protocol):
    """A tablet whose rows may be part of a transaction that another node decides."""

    async def part_of(self, sent: SentRows) -> ReceivedPart:
        """Return rows as a part, to be prepared. ValueError for what is no rows; CommitRefused, TableError."""


class BesidePart(Protocol):
    """Changes that the decision's own request makes beside the parts' rows: they are of the home's cell, and are never
    prepared. Their tablets keep nobody out before all `CommitPart`s hold."""

    @property
    def storage(self) -> TabletStorage:
        """Return the storage of a tablet that is changed."""

    async def hold(self) -> None:
        """Make the changes ready, and let nothing come between them and the request. CommitRefused, KafkaError."""

    def refusal(self) -> BaseException | None:
        """Return why the changes are impossible by now; None: they are possible."""

    def commands(self) -> Sequence[TabletCommands]:
        """Return changes of KV tablets."""

    def batches(self, decision: CommitDecision | None) -> Sequence[BatchBeside]:
        """Return changes of other tablets, with the decision where the first of them has it. ShardLost."""

    def told(self, error: BaseException | None) -> None:
        """The request has ended, or there is none: the part holds no more. After `hold` it is called once."""
