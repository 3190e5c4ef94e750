"""Consumers of a partition: how far each group has read, by group id (semantics A.3, A.14). No I/O, no clock.

Kafka's OffsetCommit stores any offset: backwards, before the start, beyond the end (K.1). A native commit goes by
`committed_in`: sessions, bounds, never backwards. A change is planned as a KV command and shows when it is durable; the
limit counts those on their way too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from pqbroker.pq.log.keys import consumer_key
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv.commands import INLINE, KEY_BYTES_MAX, Command, DeleteRange, Write
from pqbroker.storage.unreadable import check_version

_STATE = Struct(">BqiqqqqH")
_VERSION = 1


class Session(NamedTuple):
    """A read session that commits natively: its name, and what grows each time it is taken up and with each commit.

    Ordered by generation, then step.
    """

    generation: int = 0
    step: int = 0
    name: str = ""


NO_SESSION = Session()


class ConsumerOffset(NamedTuple):
    """The first offset that a group has not read, and what it said with it. Times are milliseconds since 1970."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    expire_ms: int = -1
    """-1: the broker's retention decides."""
    session: Session = NO_SESSION
    """That of the last native commit."""

    def lag(self, end_offset: int) -> int:
        """Records of the partition that are not read; 0 where the offset lies beyond the end."""
        return max(end_offset - self.offset, 0)


def encode(state: ConsumerOffset) -> bytes:
    generation, step, session = state.session
    name = session.encode()
    head = _STATE.pack(
        _VERSION, state.offset, state.leader_epoch, state.commit_ms, state.expire_ms, generation, step, len(name)
    )
    return head + name + state.metadata.encode()


def decode(stored: Buffer) -> ConsumerOffset:
    """What `encode` made; ValueError for what it cannot have made."""
    row = bytes(stored)
    check_version(row, _VERSION)
    if len(row) < _STATE.size:
        raise ValueError(f"it has {len(row)} bytes")
    _, offset, leader_epoch, commit_ms, expire_ms, generation, step, name_bytes = _STATE.unpack_from(row)
    texts = row[_STATE.size :]
    if name_bytes > len(texts):
        raise ValueError(f"it has {len(row)} bytes and a session's name of {name_bytes}")
    session = Session(generation, step, texts[:name_bytes].decode()) if name_bytes or generation or step else NO_SESSION
    metadata = texts[name_bytes:].decode()
    return ConsumerOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, session)


def committed_in(
    session: Session, stored: ConsumerOffset | None, wanted: ConsumerOffset, bounds: tuple[int, int], *, strict: bool
) -> ConsumerOffset | None:
    """What a native commit makes of a consumer's state (A.14); None: it is acknowledged and changes nothing.

    `bounds`: start and end offset. An offset at or before the stored one is ignored. `strict` refuses what lies outside
    the bounds, else an offset behind the end becomes the end. KafkaError ILLEGAL_GENERATION for a session that a later
    one has replaced (WRONG_COOKIE), OFFSET_OUT_OF_RANGE (COMMIT_TO_PAST, COMMIT_TO_FUTURE).
    """
    start, end = bounds
    offset = wanted.offset
    if stored is not None:
        if session[:2] < stored.session[:2]:
            text = f"the session {session.name!r} is over: {stored.session.name!r} has committed since"
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, text)
        if offset <= stored.offset:
            return None
    if strict and not start <= offset <= end:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside [{start}, {end}]")
    return wanted._replace(offset=min(offset, end), session=session)


def recreated(stored: ConsumerOffset | None) -> ConsumerOffset:
    """A consumer that is re-created: its generation grows, so that earlier sessions are over, and it reads from 0."""
    generation = stored.session.generation + 1 if stored is not None else 0
    return ConsumerOffset(0, session=Session(generation))


class Consumers:
    """The consumers of one partition; at most `count_max`, each with at most `metadata_max` characters of metadata."""

    __slots__ = ("_coming", "_count_max", "_index", "_metadata_max", "_states")

    def __init__(
        self, index: int, count_max: int, metadata_max: int, stored: Iterable[tuple[str, ConsumerOffset]] = ()
    ) -> None:
        self._index = index
        self._count_max = count_max
        self._metadata_max = metadata_max
        self._states = dict(stored)
        self._coming: Counter[str] = Counter()
        """New groups whose first commits are on their way: how many of each."""

    def get(self, group_id: str) -> ConsumerOffset | None:
        return self._states.get(group_id)

    def first_unread(self, group_ids: Iterable[str]) -> dict[str, int]:
        """The first offset that each of the groups has not read; -1 without a commit."""
        states = self._states
        return {group_id: states[group_id].offset if group_id in states else -1 for group_id in group_ids}

    def all(self) -> Mapping[str, ConsumerOffset]:
        """By group id; only to be looked at."""
        return MappingProxyType(self._states)

    def plan(self, group_id: str, state: ConsumerOffset | None) -> Command:
        """What stores the state, or deletes it (None); `settle` has to follow.

        KafkaError OFFSET_METADATA_TOO_LARGE, INVALID_GROUP_ID, and POLICY_VIOLATION for one consumer too many.
        """
        key = consumer_key(self._index, group_id)
        if state is None:
            return DeleteRange(key, True, key, True)
        if len(state.metadata) > self._metadata_max:
            text = f"metadata of {len(state.metadata)} characters; offset.metadata.max.bytes is {self._metadata_max}"
            raise KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, text)
        if len(key) > KEY_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"a group id that makes a key of {len(key)} bytes")
        if group_id not in self._states:
            if group_id not in self._coming and len(self._states) + len(self._coming) >= self._count_max:
                text = f"the partition has pqbroker.partition.consumers.max = {self._count_max} consumers"
                raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
            self._coming[group_id] += 1
        row = encode(state)
        return Write(key, (row,), len(row), INLINE)

    def settle(self, group_id: str, state: ConsumerOffset | None, *, is_durable: bool) -> None:
        """A planned change became durable, or came to nothing."""
        if state is not None and group_id in self._coming:
            self._coming[group_id] -= 1
            if is_durable or not self._coming[group_id]:
                del self._coming[group_id]
        if not is_durable:
            return
        if state is None:
            self._states.pop(group_id, None)
        else:
            self._states[group_id] = state
