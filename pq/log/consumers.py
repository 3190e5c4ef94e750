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

from pqbroker.conf.shares import Shares, address_of, first_of, reserve_of
from pqbroker.pq.log.keys import consumer_key
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv.commands import INLINE, KEY_BYTES_MAX, Command, DeleteRange, Write
from pqbroker.storage.unreadable import check_version

_STATE = Struct(">BqiqqqqH")
_CREATOR = Struct(">H")
_VERSION = 1
_VERSION_WITH_CREATOR = 2
"""Behind the numbers it has the bytes of the creator, which stands between session and metadata."""


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
    """Session of the last native commit."""
    creator: str = ""
    """The holder whose first commit made the consumer (`holder_of`); empty: unknown. Only its address is stored."""

    def lag(self, end_offset: int) -> int:
        """Records of the partition that are not read; 0 where the offset lies beyond the end."""
        return max(end_offset - self.offset, 0)


def encode(state: ConsumerOffset) -> bytes:
    generation, step, session = state.session
    name, creator = session.encode(), address_of(state.creator).encode()
    version = _VERSION_WITH_CREATOR if creator else _VERSION
    head = _STATE.pack(
        version, state.offset, state.leader_epoch, state.commit_ms, state.expire_ms, generation, step, len(name)
    )
    if creator:
        head += _CREATOR.pack(len(creator))
    return head + name + creator + state.metadata.encode()


def decode(stored: Buffer) -> ConsumerOffset:
    """Return the offset that `encode` stored; ValueError for bytes that it cannot have made."""
    row = bytes(stored)
    has_creator = row[:1] != bytes((_VERSION,))
    check_version(row, _VERSION_WITH_CREATOR if has_creator else _VERSION)
    head_bytes = _STATE.size + (_CREATOR.size if has_creator else 0)
    if len(row) < head_bytes:
        raise ValueError(f"it has {len(row)} bytes")
    _, offset, leader_epoch, commit_ms, expire_ms, generation, step, name_bytes = _STATE.unpack_from(row)
    creator_bytes = _CREATOR.unpack_from(row, _STATE.size)[0] if has_creator else 0
    texts = row[head_bytes:]
    if name_bytes + creator_bytes > len(texts):
        raise ValueError(f"it has {len(row)} bytes, a session's name of {name_bytes} and a creator of {creator_bytes}")
    session = Session(generation, step, texts[:name_bytes].decode()) if name_bytes or generation or step else NO_SESSION
    creator = texts[name_bytes : name_bytes + creator_bytes].decode()
    metadata = texts[name_bytes + creator_bytes :].decode()
    return ConsumerOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, session, creator)


def committed_in(
    session: Session, stored: ConsumerOffset | None, wanted: ConsumerOffset, bounds: tuple[int, int], *, strict: bool
) -> ConsumerOffset | None:
    """Return the consumer's state after a native commit (A.14); None: the commit is acknowledged and changes nothing.

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
    """Return a re-created consumer: its generation grows, which ends earlier sessions, and it reads from 0."""
    generation = stored.session.generation + 1 if stored is not None else 0
    return ConsumerOffset(0, session=Session(generation))


class Consumers:
    """The consumers of one partition; at most `count_max`, each with at most `metadata_max` characters of metadata.

    They are shared among the holders that created them (conf/shares.py); none is ever displaced.
    """

    __slots__ = ("_coming", "_count_max", "_creators", "_index", "_metadata_max", "_shares", "_states")

    def __init__(
        self, index: int, count_max: int, metadata_max: int, stored: Iterable[tuple[str, ConsumerOffset]] = ()
    ) -> None:
        self._index = index
        self._count_max = count_max
        self._metadata_max = metadata_max
        self._coming: Counter[str] = Counter()
        """New groups whose first commits are on their way: how many of each."""
        self.take(dict(stored))

    def take(self, stored: dict[str, ConsumerOffset]) -> None:
        """Have these, which are this object's then, be the states; nothing that was planned before counts."""
        self._states = stored
        self._coming.clear()
        self._creators = {group_id: state.creator for group_id, state in self._states.items()}
        """Holders that made the groups, new groups included."""
        self._shares = Shares[str]()
        for creator in self._creators.values():
            self._shares.take(creator)

    def get(self, group_id: str) -> ConsumerOffset | None:
        return self._states.get(group_id)

    def first_unread(self, group_ids: Iterable[str]) -> dict[str, int]:
        """The first offset that each of the groups has not read; -1 without a commit."""
        states = self._states
        return {group_id: states[group_id].offset if group_id in states else -1 for group_id in group_ids}

    def all(self) -> Mapping[str, ConsumerOffset]:
        """Return the consumers' states by group id; only to be looked at."""
        return MappingProxyType(self._states)

    def plan(self, group_id: str, state: ConsumerOffset | None) -> Command:
        """Return the command that stores the state, or deletes it (None); `settle` has to follow.

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
            if group_id not in self._coming:
                self._check_share(state.creator)
                self._create(group_id, state.creator)
            self._coming[group_id] += 1
        row = encode(self._created(group_id, state))
        return Write(key, (row,), len(row), INLINE)

    def settle(self, group_id: str, state: ConsumerOffset | None, *, is_durable: bool) -> None:
        """A planned change became durable, or came to nothing."""
        if state is not None and group_id in self._coming:
            self._coming[group_id] -= 1
            if is_durable or not self._coming[group_id]:
                del self._coming[group_id]
        if is_durable and state is None:
            self._states.pop(group_id, None)
        elif is_durable and state is not None:
            if group_id not in self._creators:  # deleted while this was on its way
                self._create(group_id, state.creator)
            self._states[group_id] = self._created(group_id, state)
        if group_id in self._creators and group_id not in self._states and group_id not in self._coming:
            self._shares.give_back(self._creators.pop(group_id))

    def _check_share(self, creator: str) -> None:
        """KafkaError POLICY_VIOLATION when the creator may have no consumer more."""
        size, shares = self._count_max, self._shares
        if shares.may_take(size, creator):
            return
        text = (
            f"the partition has {shares.total} of pqbroker.partition.consumers.max = {size} consumers, and "
            f"{shares.of(creator)} were created from here: the last {reserve_of(size)} are for addresses that created "
            f"fewer than {first_of(size)}; delete groups that nobody needs, or raise the setting"
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def _create(self, group_id: str, creator: str) -> None:
        self._creators[group_id] = creator
        self._shares.take(creator)

    def _created(self, group_id: str, state: ConsumerOffset) -> ConsumerOffset:
        """Return the state with the consumer's own creator, also where another address commits."""
        creator = self._creators.get(group_id, state.creator)
        return state if creator == state.creator else state._replace(creator=creator)
