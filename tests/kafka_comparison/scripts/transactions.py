"""Transactional producers: each API about an id that nobody has, and one id through its states."""

from collections.abc import Callable
from typing import Any

from pqbroker.broker.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
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
from pqbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, Side

PRODUCER_ID = 5_000_000
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
