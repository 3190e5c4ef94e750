"""Consumers of a partition: how far each group has read, by group id (semantics A.3, A.14). No I/O, no clock.

Kafka's OffsetCommit stores what it is given: backwards, before the start, beyond the end (K.1). A change is planned as
a KV command and shows when it is durable; the limit counts those on their way too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from pqbroker.pq.keys import consumer_key
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv_commands import INLINE, KEY_BYTES_MAX, Command, DeleteRange, Write

_STATE = Struct(">Bqiqq")
_VERSION = 1


class ConsumerOffset(NamedTuple):
    """The first offset that a group has not read, and what it said with it. Times are milliseconds since 1970."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    expire_ms: int = -1
    """-1: the broker's retention decides."""


def encode(state: ConsumerOffset) -> bytes:
    head = _STATE.pack(_VERSION, state.offset, state.leader_epoch, state.commit_ms, state.expire_ms)
    return head + state.metadata.encode()


def decode(row: Buffer) -> ConsumerOffset:
    version, offset, leader_epoch, commit_ms, expire_ms = _STATE.unpack_from(row)
    assert version == _VERSION, version
    return ConsumerOffset(offset, leader_epoch, bytes(row[_STATE.size :]).decode(), commit_ms, expire_ms)


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
