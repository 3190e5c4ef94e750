"""Reads of the store: again where what they read has gone, refused with an error that clients try again after."""

import pytest

from pqbroker.pq.reading.run_loading import ATTEMPTS_MAX
from pqbroker.pq.serving.served_reads import read_served
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing, ShardLost
from pqbroker.storage.kv.commands import KeyMissing


class Store:
    """Fails with `failures` one after the other, then gives an answer."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.reads = self.checks = 0
        self.is_served_for = ATTEMPTS_MAX

    def check_served(self) -> None:
        self.checks += 1
        if self.checks > self.is_served_for:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def read(self) -> str:
        self.reads += 1
        if self.failures:
            raise self.failures.pop(0)
        return "found"


async def test_a_read_begins_again_where_what_it_reads_has_gone() -> None:
    store = Store(KeyMissing(b"d"), BlobMissing("gone"))
    assert await read_served(store.check_served, store.read) == "found"
    assert (store.reads, store.checks) == (3, 3)


async def test_a_read_that_never_finds_what_it_reads_ends() -> None:
    store = Store(*[KeyMissing(b"d")] * (ATTEMPTS_MAX + 1))
    with pytest.raises(KafkaError) as refused:
        await read_served(store.check_served, store.read)
    assert (refused.value.code, store.reads) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ATTEMPTS_MAX)


async def test_a_partition_that_is_served_no_longer_is_not_read_again() -> None:
    store = Store(KeyMissing(b"d"), KeyMissing(b"d"))
    store.is_served_for = 1
    with pytest.raises(KafkaError):
        await read_served(store.check_served, store.read)
    assert store.reads == 1


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (BlobCorrupt(BlobKey(b""), 3, "a test"), ErrorCode.CORRUPT_MESSAGE),
        (ShardLost("failed"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_damage_and_loss_are_answered_at_once(failure: Exception, code: ErrorCode) -> None:
    store = Store(failure)
    with pytest.raises(KafkaError) as refused:
        await read_served(store.check_served, store.read)
    assert (refused.value.code, store.reads) == (code, 1)
