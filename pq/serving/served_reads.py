"""Reads of a partition's store while the partition is served, tried again where what they read has gone meanwhile."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pqbroker.pq.reading.run_loading import ATTEMPTS_MAX
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, ShardLost
from pqbroker.storage.kv.commands import KeyMissing

_T = TypeVar("_T")


async def read_served(check_served: Callable[[], None], read: Callable[[], Awaitable[_T]]) -> _T:
    """Return what `read` finds. Rows that it reads may be deleted from the front, or go from the head into a body: it
    begins again. KafkaError CORRUPT_MESSAGE, NOT_LEADER_OR_FOLLOWER, and what `check_served` raises."""
    for _ in range(ATTEMPTS_MAX):
        check_served()
        try:
            return await read()
        except BlobCorrupt as damage:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except (KeyMissing, BlobMissing):
            continue
        except ShardLost as lost:
            raise not_leader() from lost
    raise not_leader()
