"""Random walks of two producers with one transactional id, beside Apache Kafka.

python -m tests.kafka_comparison.transactional_walks --walks 100

Each step is one request of one of the two, in any version, some of them sent again since the answer was lost. Errors,
epochs, states and offsets must be the same. A walk ends where Kafka lets a producer that was fenced long ago abort the
transaction of the one behind it, by naming its old epoch: here it is refused, and nothing happens.
"""

import argparse
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pqbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.testing import broker
from tests.kafka_comparison.run import OURS, THEIRS, made_side
from tests.kafka_comparison.scripts.transactions import WAITING, adding, committing, coordinated, ending
from tests.kafka_comparison.side import Side
from tests.support.kafka.broker import ApacheKafka

STEPS: Final = 40
TRIES: Final = 500
KAFKAS: Final = {
    "transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}  # fmt: skip
Claim = tuple[int, int]
Told = tuple[object, ...]


class Step(NamedTuple):
    """One request: what it does, which producer sends it, its version, a number for it, and if its answer is lost."""

    kind: str
    who: int
    version: int
    number: int
    is_lost: bool


class Walk:
    """One transactional id on one broker."""

    def __init__(self, side: Side, seed: int) -> None:
        self._side = side
        side.begin(f"walk-{seed}", 0, 0.02)
        self._topic = side.topic(2)
        self._claims: list[Claim] = [(5_000_000, 0)] * 2
        self._ids: dict[int, int] = {}
        """Numbers of producer ids, in the order in which they came."""
        self._sequences: dict[tuple[Claim, int], int] = {}
        side.group()
        coordinated(side, self._topic)

    def take(self, step: Step) -> Told:
        """Send a request until its answer is final; return that, with ids by their order."""
        send: Callable[[Step], Told] = getattr(self, f"_{step.kind}")
        for _ in range(TRIES):
            told = send(step)
            if told[0] not in WAITING:
                break
        self._settle()
        return told

    def _settle(self) -> None:
        while self._state(None)[0] in WAITING:
            pass

    def _initialise(self, step: Step) -> Told:
        had = self._claims[step.who] if step.number % 2 and step.version >= 3 else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self._topic, transaction_timeout_ms=60_000, producer_id=had[0], producer_epoch=had[1]
        )
        return self._claimed(step, self._side.ask(request, step.version))

    def _add(self, step: Step) -> Told:
        request = adding(self._side, self._topic, self._claims[step.who], step.number % 2, version=step.version)
        answer = self._side.ask(request, step.version)
        topics = (
            answer.results_by_transaction[0].topic_results if step.version >= 4
            else answer.results_by_topic_v3_and_below
        )  # fmt: skip
        return (ErrorCode(topics[0].results_by_partition[0].partition_error_code).name,)

    def _add_group(self, step: Step) -> Told:
        claim = self._claims[step.who]
        request = AddOffsetsToTxnRequest(
            transactional_id=self._topic, producer_id=claim[0], producer_epoch=claim[1], group_id=self._topic
        )
        return (ErrorCode(self._side.ask(request, step.version).error_code).name,)

    def _commit_offset(self, step: Step) -> Told:
        request = committing(self._topic, self._claims[step.who], self._topic)
        request.topics[0].partitions[0].committed_offset = step.number
        answer = self._side.ask(request, step.version)
        return (ErrorCode(answer.topics[0].partitions[0].error_code).name,)

    def _end(self, step: Step) -> Told:
        request = ending(self._topic, self._claims[step.who], is_commit=step.number % 3 > 0)
        answer = self._side.ask(request, step.version)
        return self._claimed(step, answer) if step.version >= 5 else (ErrorCode(answer.error_code).name,)

    def _produce(self, step: Step) -> Told:
        claim, index = self._claims[step.who], step.number % 2
        sequence = self._sequences.get((claim, index), 0)
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, b"v", ())], attributes=0x10, producer_id=claim[0],
            producer_epoch=claim[1], base_sequence=sequence,
        )  # fmt: skip
        topic = TopicProduceData(
            name=self._topic, partition_data=[PartitionProduceData(index=index, records=memoryview(batch))]
        )
        request = ProduceRequest(transactional_id=self._topic, acks=-1, timeout_ms=3000, topic_data=[topic])
        code = ErrorCode(self._side.ask(request, step.version).responses[0].partition_responses[0].error_code)
        if not code:
            self._sequences[claim, index] = sequence + 1
        return (code.name,)

    def _state(self, _: Step | None) -> Told:
        answer = self._side.ask(DescribeTransactionsRequest(transactional_ids=[self._topic]), 0)
        found = answer.transaction_states[0]
        if found.transaction_state.startswith("Prepare"):
            return ("CONCURRENT_TRANSACTIONS",)
        places = [(each.topic, sorted(each.partitions)) for each in found.topics if each.topic == self._topic]
        return found.transaction_state, found.producer_epoch, places

    def _offset(self, _: Step) -> Told:
        topics = [OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=self._topic, topics=topics)]
        answer = self._side.ask(OffsetFetchRequest(groups=groups, require_stable=True), 8)
        found = answer.groups[0].topics[0].partitions[0]
        return ErrorCode(found.error_code).name, found.committed_offset

    def _claimed(self, step: Step, answer: Any) -> Told:
        """Return what an answer gave, and keep it unless the answer is lost."""
        code = ErrorCode(answer.error_code).name
        if answer.error_code:
            return (code,)
        if not step.is_lost:
            self._claims[step.who] = (answer.producer_id, answer.producer_epoch)
        number = self._ids.setdefault(answer.producer_id, len(self._ids))
        return code, number, answer.producer_epoch


VERSIONS: Final = {
    "initialise": (0, 5), "add": (0, 3), "add_group": (0, 4), "commit_offset": (0, 5), "end": (0, 5),
    "produce": (9, 12), "state": (0, 0), "offset": (0, 0),
}  # fmt: skip
LIKELY: Final = ("add", "commit_offset", "end", "end", "end", "produce", "produce", "produce")


def steps(seed: int) -> list[Step]:
    """Return a walk: both producers speak the first version of the protocol, or the second one."""
    source = random.Random(seed)
    is_second = source.random() < 0.5
    walk = [Step("initialise", 0, 4, 0, False)]
    for _ in range(STEPS):
        kind = source.choice((*VERSIONS, *LIKELY))
        low, high = VERSIONS[kind]
        version = source.randint(low, high)
        if kind in ("commit_offset", "end", "produce"):
            version = high if is_second else source.randint(low, high - 1)
        walk.append(Step(kind, source.randrange(2), version, source.randrange(60), source.random() < 0.2))
    return walk


def main() -> None:
    """Walk on both brokers and print where they part."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_comparison.transactional_walks", description=__doc__)
    parser.add_argument("--walks", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    parted = 0
    with broker(settings=OURS) as ours, ApacheKafka(properties=THEIRS | KAFKAS) as theirs:
        sides = made_side(ours.kafka), made_side(theirs.kafka)
        for seed in range(options.seed, options.seed + options.walks):
            parted += _walk(sides, seed)
    print(f"{options.walks} walks from seed {options.seed}, {parted} in which the brokers part")
    parser.exit(parted > 0)


def _walk(sides: tuple[Side, Side], seed: int) -> bool:
    """Return True if the brokers part."""
    walks = [Walk(side, seed) for side in sides]
    taken: list[tuple[Step, Told]] = []
    for step in steps(seed):
        ours, theirs = (walk.take(step) for walk in walks)
        taken.append((step, ours))
        if ours != theirs:
            print(f"seed {seed}: ours {ours}, Kafka's {theirs}, behind", *taken[-8:], sep="\n  ")
            return True
        if step.kind == "initialise" and step.number % 2 and ours[0] in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
            return False
    return False


if __name__ == "__main__":
    main()
