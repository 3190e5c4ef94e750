"""Batches that lie: small ones that are enormous when they are looked into, and counts that no key has room for."""


import pytest
import zstandard

from pqbroker.protocol.compression import GZIP, ZSTD, compress
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.primitives import varlong
from tests.broker.conftest import produce_request
from tests.protocol.test_produced_batches import batch_of
from tests.support.attacked import TURN_EVER_S_MAX, Caller, attacked

MIB = 1 << 20
BOMB_BYTES = 110 * MIB


def create(attacker: Caller, partitions: int) -> None:
    topic = CreatableTopic(name="bombs", num_partitions=partitions, replication_factor=1)
    attacker.ask(CreateTopicsRequest(topics=[topic]))


def produce(attacker: Caller, batch: memoryview, partition: int = 0) -> int:
    answer = attacker.ask(produce_request("bombs", bytes(batch), partition), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize(("codec", "bombs"), [(GZIP, 2), (ZSTD, 8)])
def test_searches_by_time_over_bombs(codec: int, bombs: int) -> None:
    """Two records of 55 MiB of nothing, in batches of kilobytes; the time is the second's."""
    bodies = [b"\0" + varlong(100 * number) + varlong(number) + b"\1" for number in range(2)]
    filled = [body + varlong(BOMB_BYTES // 2) + bytes(BOMB_BYTES // 2) + b"\0" for body in bodies]
    contents = b"".join(varlong(len(body)) + body for body in filled)
    packed = zstandard.ZstdCompressor(level=1).compress(contents) if codec == ZSTD else compress(GZIP, contents)
    with attacked(turn_s_max=TURN_EVER_S_MAX) as node:
        attacker = node.connect()
        create(attacker, bombs)
        bomb = batch_of(2, packed, codec, max_timestamp=100)
        assert [produce(attacker, bomb, index) for index in range(bombs)] == [0] * bombs
        asked = [ListOffsetsPartition(partition_index=index, timestamp=50) for index in range(bombs)]
        topics = [ListOffsetsTopic(name="bombs", partitions=asked)]
        answer = attacker.ask(ListOffsetsRequest(replica_id=-1, topics=topics))
        found = [(one.error_code, one.offset, one.timestamp) for one in answer.topics[0].partitions]
        assert found == [(0, 1, 100)] * bombs
        attacker.close()


def test_counts_that_no_key_has_room_for() -> None:
    """Eighteen batches of 126 bytes once made a directory that nobody could start."""
    with attacked(turn_s_max=TURN_EVER_S_MAX) as node:
        attacker = node.connect()
        create(attacker, 1)
        lie = batch_of((1 << 31) - 1, b"\x80\1" + bytes(63))
        assert [produce(attacker, lie) for _ in range(18)] == [ErrorCode.INVALID_RECORD] * 18
        hard = batch_of((1 << 31) - 1, b"\x28\xb5\x2f\xfd" + bytes(600_000), ZSTD)
        assert [produce(attacker, hard) for _ in range(18)] == [0] * 18
        attacker.close()
