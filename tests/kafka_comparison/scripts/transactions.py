"""Transactional producers: each API about an id that nobody has, one id through its states, and what readers see."""

from collections.abc import Callable
from typing import Any

from pqbroker.broker.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    fetch,
    list_offsets,
    offset_fetch,
    txn_offset_commit,
)
from pqbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pqbroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pqbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pqbroker.protocol.messages.end_txn import EndTxnRequest
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pqbroker.protocol.records import TRANSACTIONAL
from tests.kafka_comparison.scripts.groups import fetching
from tests.kafka_comparison.scripts.records import finding, reading
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, T0_MS, Side, batch

PRODUCER_ID = 5_000_000
LEVELS = (0, 1)
"""Isolation levels: read_uncommitted, read_committed."""
WAITING = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"}


def begun(side: Side, name: str) -> tuple[int, int]:
    """Begin as a producer of a transactional id; return its producer id and epoch."""
    coordinated(side, name)
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    while (answer := side.ask(request, 5)).error_code:
        assert answer.error_code.name in WAITING, answer
    return answer.producer_id, answer.producer_epoch


def coordinated(side: Side, name: str) -> None:
    """Wait until the coordinator of a transactional id serves."""
    while side.ask(FindCoordinatorRequest(key=name, key_type=1), 3).error_code:
        pass
    request = DescribeTransactionsRequest(transactional_ids=[name])
    while side.ask(request, 0).transaction_states[0].error_code.name in WAITING:
        pass


def until_ended(side: Side, name: str) -> None:
    """Wait until no transaction of the id is being ended."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    while side.ask(request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
        pass


def adding(side: Side, name: str, claim: tuple[int, int], *indexes: int, topic: str = "", version: int = 3) -> Any:
    """Return a request that adds partitions of the case's topic, as clients send it or as brokers do."""
    topics = [AddPartitionsToTxnTopic(name=topic or side.name, partitions=list(indexes))]
    if version >= 4:
        one = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=claim[0], producer_epoch=claim[1], topics=topics
        )
        return AddPartitionsToTxnRequest(transactions=[one])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name, v3_and_below_producer_id=claim[0], v3_and_below_producer_epoch=claim[1],
        v3_and_below_topics=topics,
    )  # fmt: skip


def ending(name: str, claim: tuple[int, int], *, is_commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=claim[0], producer_epoch=claim[1], committed=is_commit
    )


def committing(name: str, claim: tuple[int, int], topic: str = SHARED) -> TxnOffsetCommitRequest:
    place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id=name, producer_id=claim[0], producer_epoch=claim[1], group_id=name,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
    )  # fmt: skip


@varied(add_offsets_to_txn.API)
def a_group_to_add(side: Side) -> AddOffsetsToTxnRequest:
    coordinated(side, "nobody")
    return AddOffsetsToTxnRequest(transactional_id="nobody", producer_id=PRODUCER_ID, group_id="nobody")


@varied(describe_transactions.API)
def an_id(side: Side) -> DescribeTransactionsRequest:
    coordinated(side, "nobody")
    return DescribeTransactionsRequest(transactional_ids=["nobody"])


@varied(end_txn.API)
def an_end(side: Side) -> EndTxnRequest:
    coordinated(side, "nobody")
    return ending("nobody", (PRODUCER_ID, 0))


def of_claims(side: Side, make: Callable[[str, tuple[int, int]], Any]) -> None:
    """Compare a request of a producer, of earlier and later ones and of others, while its transaction is open."""
    name = side.topic(2)
    claim = begun(side, name)
    side.ask(adding(side, name, claim, 0), 3)
    for label, other in (
        ("another id", (PRODUCER_ID, claim[1])), ("later", (claim[0], claim[1] + 1)),
        ("earlier", (claim[0], claim[1] - 1)), ("its own", claim),
    ):  # fmt: skip
        side.compare(make(name, other), label)
    until_ended(side, name)
    side.ask(ending(name, claim, is_commit=False), 3)


@script(add_partitions_to_txn.API)
def partitions_to_add(side: Side) -> None:
    version = side.version
    of_claims(side, lambda name, claim: adding(side, name, claim, 1, version=version))
    name = f"{side.name}-2"
    claim = begun(side, name)
    side.compare(adding(side, name, claim, 0, 9, version=version), "unknown partition")
    side.compare(adding(side, name, claim, 0, topic="nobody", version=version), "unknown topic")
    side.compare(adding(side, "nobody", claim, 0, version=version), "unknown id")


@script(add_offsets_to_txn.API)
def groups_to_add(side: Side) -> None:
    of_claims(
        side,
        lambda name, claim: AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=claim[0], producer_epoch=claim[1], group_id=name
        ),
    )


@script(txn_offset_commit.API)
def offsets_in_transactions(side: Side) -> None:
    side.group()
    of_claims(side, committing)
    name = f"{side.name}-2"
    side.compare(committing(name, begun(side, name), "nobody"), "unknown topic")


@script(end_txn.API, until=4)
def ends(side: Side) -> None:
    """Ends in each state, sent again, and the opposite ones."""
    side.topic()
    for is_commit in (True, False):
        name = f"{side.name}-{is_commit}"
        claim = begun(side, name)
        side.compare(ending(name, claim, is_commit=is_commit), f"empty {is_commit}")
        side.ask(adding(side, name, claim, 0), 3)
        side.compare(ending(name, claim, is_commit=is_commit), f"open {is_commit}")
        until_ended(side, name)
        side.compare(ending(name, claim, is_commit=is_commit), f"again {is_commit}")
        side.compare(ending(name, claim, is_commit=not is_commit), f"opposite {is_commit}")


# What readers see.


def writing(side: Side, name: str, claim: tuple[int, int]) -> None:
    """Write a batch in the transaction of an id to the first partition of the case's topic."""
    side.ask(adding(side, name, claim, 0), 3)
    records = batch(attributes=TRANSACTIONAL, producer_id=claim[0], producer_epoch=claim[1], base_sequence=0)
    data = [PartitionProduceData(index=0, records=memoryview(records))]
    topics = [TopicProduceData(name=side.name, partition_data=data)]
    request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=topics)
    answer = side.ask(request, 9)
    assert not answer.responses[0].partition_responses[0].error_code, answer


def mix(side: Side) -> None:
    """Fill the case's topic: a plain record, one that is committed, one that is aborted, a plain one, two of two
    producers that stay open, a plain one. It ends at 9, and the last stable offset is 6."""
    side.topic(configs={"segment.ms": str(2**63 - 1)})  # else Kafka begins a segment behind records of years ago
    side.write(side.name, batch(0))
    for is_commit in (True, False):
        name = f"{side.name}-{is_commit}"
        claim = begun(side, name)
        writing(side, name, claim)
        side.ask(ending(name, claim, is_commit=is_commit), 3)
        until_ended(side, name)
    side.write(side.name, batch(1))
    for number in range(2):
        name = f"{side.name}-open-{number}"
        writing(side, name, begun(side, name))
    side.write(side.name, batch(2))


def unmix(side: Side) -> None:
    """End the transactions that are open: the first one commits, and what the second one wrote is aborted."""
    for number, is_commit in enumerate((True, False)):
        name = f"{side.name}-open-{number}"
        side.ask(ending(name, claim_of(side, name), is_commit=is_commit), 3)
        until_ended(side, name)


def claim_of(side: Side, name: str) -> tuple[int, int]:
    """Return the claim of an id's open transaction."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    (state,) = side.ask(request, 0).transaction_states
    return state.producer_id, state.producer_epoch


@script(fetch.API, since=4)
def committed_reads(side: Side) -> None:
    """Reads from every offset at both levels, while two transactions are open and when they have ended."""
    mix(side)
    for step in ("open", "ended"):
        for level in LEVELS:
            for offset in range(13):
                side.compare(reading(side, side.name, offset=offset, isolation_level=level), f"{step} {level} {offset}")
        if step == "open":
            unmix(side)


@script(list_offsets.API, since=2)
def committed_ends(side: Side) -> None:
    """Ends, and offsets by time, at both levels, while two transactions are open and when they have ended."""
    mix(side)
    for step in ("open", "ended"):
        for level in LEVELS:
            for timestamp in (-1, -2, T0_MS, T0_MS + 1000, T0_MS + 2000):
                asked = finding(timestamp, topic=side.name)
                asked.isolation_level = level
                side.compare(asked, f"{step} {level} {timestamp}")
        if step == "open":
            unmix(side)


@script(offset_fetch.API, since=7)
def stable_offsets(side: Side) -> None:
    """Offsets of a group while a transaction that has others is open, and when it has been aborted or committed."""
    group = side.group()
    for is_commit in (False, True):
        claim = begun(side, group)
        side.ask(AddOffsetsToTxnRequest(
            transactional_id=group, producer_id=claim[0], producer_epoch=claim[1], group_id=group
        ), 3)  # fmt: skip
        side.ask(committing(group, claim), 3)
        for step in ("open", "ended"):
            for is_stable in (True, False):
                asked = fetching(side, group)
                asked.require_stable = is_stable
                side.compare(asked, f"{step} {is_commit} {is_stable}")
            if step == "open":
                side.ask(ending(group, claim, is_commit=is_commit), 3)
                until_ended(side, group)
