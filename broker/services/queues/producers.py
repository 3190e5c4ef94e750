"""Producers of queues: a session has an epoch, which fences its earlier owners, and the number of its last row (E.13).

A session's state is a row of each partition that took rows of it, written in the request of those rows; the greatest
epoch and number count. It is forgotten as other sessions are: with its rows, after `producer.id.expiration.ms`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from json import dumps, loads
from typing import Any, NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.queues.callers import QueuesCaller
from pqbroker.broker.services.queues.finding import find_queue
from pqbroker.broker.services.tables.finding import find_typed, state_of
from pqbroker.broker.services.tables.inserting import (
    GivenRows,
    InsertedRange,
    encode_rows,
    insert_encoded,
    none_mounted,
)
from pqbroker.broker.services.tables.sessions_away import (
    forget_anywhere,
    list_anywhere,
    taken_anywhere,
    write_anywhere,
)
from pqbroker.broker.services.tables.sessions_known import SessionPlace, age, newest
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.sessions import (
    NO_SEQUENCE,
    SESSION_NAME_BYTES_MAX,
    Fence,
    ProducerState,
    SessionBatch,
    producer_session,
)
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.mount import MountState
from pqbroker.tables.paths import table_path
from pqbroker.tables.queues import check_epoch, numbered_rows
from pqbroker.tables.refusals import TableError

_CLOSED = "Take the session first: `pqbroker queue take-session`, or POST /v1/queues/NAME/producer-sessions."


@dataclass(frozen=True, slots=True)
class SessionName:
    """A session of a producer. TableError INVALID_SESSION for names that nothing is kept under."""

    producer: str
    session: str

    def __post_init__(self) -> None:
        for what, text in (("producer", self.producer), ("session", self.session)):
            if not text or not text.isprintable():
                raise _invalid(f"{what} is {text[:100]!r}", "Give printable text.")
        size = len(self.stored.encode(errors="surrogatepass"))
        if size > SESSION_NAME_BYTES_MAX:
            text = f"producer and session have {size - 1} bytes"
            raise _invalid(text, f"Give at most {SESSION_NAME_BYTES_MAX - 1} bytes together.")

    @property
    def stored(self) -> str:
        """Return the name under which partitions keep it."""
        return producer_session(self.producer, self.session)


class SessionState(NamedTuple):
    """A session as it is known: `sequence_number` of its last row, -1 before the first."""

    epoch: int
    sequence_number: int
    user_meta: Any
    written_ms: int


class ListedSession(NamedTuple):
    """A session with its producer's name and its own."""

    producer: str
    session: str
    state: SessionState


@dataclass(frozen=True, slots=True)
class Push:
    """Rows of a session's owner. `first`: the number of the first row; None: each row has its own. `user_meta` None:
    as it was."""

    epoch: int
    rows: GivenRows
    first: int | None = None
    user_meta: Any = None


class Pushed(NamedTuple):
    """The outcome of a push; `skipped`: rows that were taken before."""

    last_sequence_number: int
    skipped: int
    tablets: Sequence[InsertedRange]
    weight: int


async def take_session(caller: QueuesCaller, queue: str, name: SessionName, user_meta: Any = None) -> SessionState:
    """Take a session, a new one or that of an owner who is fenced from now on; durable when it returns.

    KafkaError as a write's; TableError INVALID_SESSION, NO_MOUNTED_TABLETS. `user_meta` None: as it was.
    """
    topic = find_queue(caller, AclOperation.WRITE, queue)
    async with _lock(topic, name):
        taken = await taken_anywhere(caller, topic, name.stored)
        known = newest(taken)
        now_ms = caller.node.clock()
        meta = _meta(caller.node.settings, user_meta, known)
        epoch = 0 if known is None or known.producer is None else known.producer.epoch + 1
        sequence = NO_SEQUENCE if known is None else known.sequence
        index = _writable(topic, taken)
        here = taken.get(index)
        place = (0, 0) if here is None or here.sequence != sequence else (here.base_offset, here.row_count)
        batch = SessionBatch(sequence, now_ms, *place, producer=ProducerState(epoch, meta))
        await uninterrupted(write_anywhere(caller, topic, index, name.stored, (batch, here)))
    return _state(batch)


async def push(caller: QueuesCaller, queue: str, name: SessionName, given: Push) -> Pushed:
    """Write rows that the session has not taken yet, together with its number; all or none.

    TableError ZOMBIE_EPOCH, INVALID_EPOCH, INVALID_ROW_SEQUENCE_NUMBERS, NO_SESSION, and those of an insertion.
    """
    topic = find_queue(caller, AclOperation.WRITE, queue)
    _, schema = find_typed(caller, AclOperation.WRITE, queue)
    assert not isinstance(given.rows.items, bytes)
    counted = caller.node.metrics.tables
    async with _lock(topic, name):
        taken = await taken_anywhere(caller, topic, name.stored)
        known = newest(taken)
        if known is None or known.producer is None:
            text = f"there is no session {name.session!r} of producer {name.producer!r} in {topic.record.name}"
            raise TableError("NO_SESSION", text, _CLOSED)
        try:
            check_epoch(given.epoch, known.producer.epoch)
        except TableError:
            counted.refused_pushes += 1
            raise
        numbered = numbered_rows(given.rows.items, given.first, known.sequence, given.rows.place)
        counted.skipped_rows += numbered.skipped
        if not numbered.rows:
            return Pushed(known.sequence, numbered.skipped, (), 0)
        meta = _meta(caller.node.settings, given.user_meta, known)
        rows = GivenRows(numbered.rows, given.rows.look, given.rows.place)
        encoded = await encode_rows(caller, topic, schema, rows)
        fence = Fence(name.stored, numbered.last, ProducerState(given.epoch, meta))
        done = await insert_encoded(caller, topic, encoded, fence, taken)
    return Pushed(numbered.last, numbered.skipped, done.tablets, done.weight)


async def end_session(caller: QueuesCaller, queue: str, name: SessionName) -> None:
    """Forget a session; another one of its name begins with epoch 0. KafkaError as a write's; TableError NO_SESSION."""
    topic = find_queue(caller, AclOperation.WRITE, queue)
    async with _lock(topic, name):
        taken = await taken_anywhere(caller, topic, name.stored)
        if not taken:
            text = f"there is no session {name.session!r} of producer {name.producer!r} in {topic.record.name}"
            raise TableError("NO_SESSION", text, "GET /v1/queues/NAME/producer-sessions lists them.")
        # The newest goes last: what a crash leaves over fences as before.
        for index in sorted(taken, key=lambda number: age(taken[number])):
            await forget_anywhere(caller, topic, index, name.stored, taken[index])


async def list_sessions(
    caller: QueuesCaller, topic: Topic, count: int, after: SessionPlace
) -> list[ListedSession]:
    """Return the first `count` sessions of producers behind one, by name. KafkaError NOT_LEADER_OR_FOLLOWER."""
    found = await list_anywhere(caller, topic, count, after)
    return [ListedSession(*place, _state(batch)) for place, batch in found]


def _lock(topic: Topic, name: SessionName) -> asyncio.Lock:
    return topic.session_locks.setdefault(name.stored, asyncio.Lock())


def _writable(topic: Topic, taken: Iterable[int]) -> int:
    """Return a mounted tablet, one that knows the session if there is one. TableError NO_MOUNTED_TABLETS."""
    index: int
    for index in (*sorted(taken), *range(len(topic.partitions))):
        if state_of(topic, index) is MountState.MOUNTED:
            return index
    raise none_mounted(f"{table_path(topic.record.name)} has no mounted tablets")


def _state(batch: SessionBatch) -> SessionState:
    assert batch.producer is not None
    epoch, meta = batch.producer
    return SessionState(epoch, batch.sequence, _read_meta(meta), batch.written_ms)


def _read_meta(meta: bytes) -> Any:
    """Return the user's document; one that is unreadable is shown as a text."""
    try:
        return loads(meta)
    except (ValueError, RecursionError):
        return meta.decode("utf-8", "replace")


def _meta(settings: BrokerSettings, given: Any, known: SessionBatch | None) -> bytes:
    """Return the document to keep. TableError INVALID_SESSION for one that is too large."""
    if given is None and known is not None and known.producer is not None:
        return known.producer.user_meta
    meta = dumps(given, separators=(",", ":")).encode()
    if len(meta) > settings.queue_meta_bytes_max:
        text = f"user_meta has {len(meta)} bytes, and pqbroker.queue.session.meta.bytes.max = "
        raise _invalid(f"{text}{settings.queue_meta_bytes_max}", "Give a smaller document, or raise the setting.")
    return meta


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_SESSION", message, cure)
