"""A transactional producer on the wire: a request of the protocol at a time, in the versions that a test says."""

from typing import Any

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pqbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pqbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pqbroker.protocol.messages.end_txn import EndTxnRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pqbroker.protocol.records import Record, batches, decode_records, encode_batch
from tests.broker.wire import Client

TRANSACTIONAL = 0x10
CONTROL = 0x20
COMMITTED = 1


class WireProducer:
    """A producer with a transactional id; `claim` is what it has of the coordinator."""

    def __init__(self, client: Client, name: str = "x") -> None:
        self.client = client
        self.name = name
        self.claim = (-1, -1)
        self._sequences: dict[tuple[str, int, tuple[int, int]], int] = {}

    async def begin(self, version: int = 4, timeout_ms: int = 60_000, *, names: bool = False) -> ErrorCode:
        """Initialise; the claim is the new one, where there is one. `names`: say the one that it has."""
        had = self.claim if names else (-1, -1)
        answer = await self.client.ask(
            InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=timeout_ms, producer_id=had[0], producer_epoch=had[1]
            ),
            version,
        )
        if not answer.error_code:
            self.claim = (answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    async def add(self, *places: tuple[str, int], version: int = 3) -> dict[tuple[str, int], str]:
        """Add partitions; codes by partition."""
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in places]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self.claim[0],
            v3_and_below_producer_epoch=self.claim[1], v3_and_below_topics=topics,
        )  # fmt: skip
        answer = await self.client.ask(request, version)
        return {
            (topic.name, each.partition_index): ErrorCode(each.partition_error_code).name
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }

    def produce_request(self, topic: str, value: bytes, partition: int = 0) -> ProduceRequest:
        key = (topic, partition, self.claim)
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + 1
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, value, ())], attributes=TRANSACTIONAL, producer_id=self.claim[0],
            producer_epoch=self.claim[1], base_sequence=sequence,
        )  # fmt: skip
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        asked = TopicProduceData(name=topic, partition_data=[data])
        return ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=1000, topic_data=[asked])

    async def produce(self, topic: str, value: bytes, partition: int = 0, version: int = 11) -> str:
        return produced(await self.client.ask(self.produce_request(topic, value, partition), version))

    async def end(self, *, is_commit: bool, version: int = 3) -> str:
        """End the transaction; from version 5 on with the next claim."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.claim[0], producer_epoch=self.claim[1], committed=is_commit
        )
        answer = await self.client.ask(request, version)
        if version >= 5 and not answer.error_code:
            self.claim = (answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code).name

    async def add_group(self, group_id: str = "g", version: int = 3) -> str:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.claim[0], producer_epoch=self.claim[1], group_id=group_id
        )
        return ErrorCode((await self.client.ask(request, version)).error_code).name

    async def commit_offset(
        self, topic: str, offset: int, *, partition: int = 0, version: int = 3, metadata: str = "", **fields: Any
    ) -> str:
        """Have an offset of group g wait in the transaction."""
        asked = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name, producer_id=self.claim[0], producer_epoch=self.claim[1],
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[asked])], **({"group_id": "g"} | fields),
        )  # fmt: skip
        answer = await self.client.ask(request, version)
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    async def state(self) -> Any:
        """Return what DescribeTransactions says."""
        answer = await self.client.ask(DescribeTransactionsRequest(transactional_ids=[self.name]))
        return answer.transaction_states[0]

    async def until_state(self, *states: str) -> Any:
        """Ask until the id is in one of these states."""
        while (found := await self.state()).transaction_state not in states:
            pass
        return found


def produced(response: Any) -> str:
    return ErrorCode(response.responses[0].partition_responses[0].error_code).name


async def committed_values(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    """Values that a reader of committed records sees, as clients work them out."""
    asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, isolation_level=COMMITTED, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )
    data = (await client.ask(request, 12)).responses[0].partitions[0]
    assert data.error_code == 0
    aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()}
    left_out: set[int] = set()
    values: list[bytes] = []
    records = b"" if data.records is None else bytes(data.records)
    for position, header in batches(records):
        if (header.producer_id, header.base_offset) in aborted:
            left_out.add(header.producer_id)
        if header.attributes & CONTROL:
            left_out.discard(header.producer_id)
        elif header.producer_id not in left_out:
            values += [bytes(record.value or b"") for record in decode_records(records[position:][: header.size_bytes])]
    return values
