"""Requests and objects of thousands: what one turn of the loop takes beside them, and how long others wait.

python -m tests.attacks.long_work [PART OF A NAME] [--stacks]
"""

import argparse
import os
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pqbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pqbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pqbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pqbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pqbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pqbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pqbroker.protocol.messages.end_txn import EndTxnRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pqbroker.protocol.messages.list_groups import ListGroupsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.conftest import make_batch, produce_request
from tests.broker.wire import request_frame
from tests.support.attacked import Attacked, Caller, attacked

PARTITIONS = 9_900
FETCHES = 100
TOPICS = 5_000
TABLETS = 9_000
GROUPS = 9_000
MEMBERS = 3_000
PENDING_OFFSETS = 1_900
"""Offsets of one transaction beside 9 900 partitions; a few hundred more would be refused."""
AT_ONCE = 100
"""Requests on their way together."""
STACKS = Path(__file__).resolve().parents[1] / "support" / "turn_stacks"
EVENTS = 3
WAIT_MS = 2_000
OTHER = "127.0.0.9"
PAUSE_S = 0.005
COLLECTED_S = 15.0
HTTP_REFUSALS = 400
SETTINGS = {"pqbroker.partitions.max": "100000", "pqbroker.topic.partitions.max": "10000"}


@dataclass(slots=True)
class Measured:
    """What others saw: p99 and worst of small requests, the longest turn of the loop."""

    p99_s: float = 0.0
    worst_s: float = 0.0
    turn_s: float = 0.0
    pass_s: float = 0.0
    running_share: float = 1.0
    """Part of the time in which the broker's loop had a processor, of that in which it wanted one."""
    slowness: float = 1.0
    """How many times longer than an ordinary core this one has taken since the broker's start."""

    @property
    def own_p99_s(self) -> float:
        """Return how long others would have waited on an ordinary core where no other programs run."""
        return self.p99_s * self.running_share / self.slowness

    @property
    def own_turn_s(self) -> float:
        """Return how long the longest turn would have been on an ordinary core."""
        return self.turn_s / self.slowness

    def __str__(self) -> str:
        return (
            f"others p99 {self.p99_s * 1000:.0f} ms, worst {self.worst_s * 1000:.0f} ms; "
            f"longest turn {self.turn_s * 1000:.0f} ms, "
            f"longest pass of the collector {self.pass_s * 1000:.0f} ms; "
            f"the loop had a processor for {self.running_share:.0%} of the time in which it wanted one, "
            f"{self.slowness:.1f} times slower than an ordinary one"
        )


@contextmanager
def measured(node: Attacked) -> Iterator[Measured]:
    """Time a Metadata and a Produce of another address all the while."""
    is_over, took = threading.Event(), list[float]()
    found = Measured()

    def call() -> None:
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name="witness")])
        with Caller(node.broker.kafka, source=OTHER) as caller:
            while not is_over.wait(PAUSE_S):
                for request, version in ((metadata, 12), (produce_request("other", make_batch(b"v")), 9)):
                    started = time.perf_counter()
                    caller.ask(request, version)
                    took.append(time.perf_counter() - started)

    thread = threading.Thread(target=call)
    ran_s, waited_s = _scheduled_s(node.broker.pid)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
        found.slowness = node.crowding.slowness
        ended_s, delayed_s = _scheduled_s(node.broker.pid)
        found.running_share = (ended_s - ran_s) / (ended_s - ran_s + delayed_s - waited_s)
        took.sort()
        found.p99_s, found.worst_s = took[len(took) * 99 // 100], took[-1]
        samples = node.samples()
        found.turn_s, found.pass_s = samples["loop_turn_worst_seconds"], samples["memory_pass_worst_seconds"]


def _scheduled_s(pid: int) -> tuple[float, float]:
    """How long the loop's thread has run, and waited for a processor."""
    ran_ns, waited_ns, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


def parked_fetches(node: Attacked, count: int) -> None:
    partitions = [FetchPartition(partition=index, fetch_offset=0) for index in range(PARTITIONS)]
    request = FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=1, topics=[FetchTopic(topic="wide", partitions=partitions)]
    )
    frame = request_frame(request, 12)
    callers = [node.connect() for _ in range(count)]
    for caller in callers:
        caller.socket.sendall(frame)
    for caller in callers:
        caller.skip()
        caller.close()


def many_topics(node: Attacked, count: int) -> None:
    topics = [CreatableTopic(name=f"n{number}", num_partitions=1, replication_factor=1) for number in range(count)]
    names = [each.name for each in topics]
    resources = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
    ask(
        node, (CreateTopicsRequest(timeout_ms=60_000, topics=topics), 7), (MetadataRequest(topics=None), 12),
        (DescribeConfigsRequest(resources=resources), 4), (DescribeLogDirsRequest(topics=None), 4),
    )  # fmt: skip
    web(node, "GET", "/v1/topics?limit=1000")
    web(node, "GET", "/v1/tree/sys?children=true")
    doomed = [DeleteTopicState(name=name) for name in names]
    ask(node, (DeleteTopicsRequest(timeout_ms=60_000, topics=doomed), 6))


def wide_table(node: Attacked, count: int) -> None:
    """A table of many tablets, made, looked at, its tablets unmounted and mounted, and removed."""
    table = f'{{"path": "//table", "schema": [{{"name": "a", "type": "int64"}}], "tablet_count": {count}}}'
    for method, path, body in (
        ("POST", "/v1/tables", table), ("GET", "/v1/tables/table", ""), ("POST", "/v1/tables/table/unmount", "{}"),
        ("POST", "/v1/tables/table/mount", "{}"), ("DELETE", "/v1/topics/table", ""),
    ):  # fmt: skip
        web(node, method, path, body)


def many_offsets(node: Attacked, count: int) -> None:
    """Offsets of one group, committed, looked at and deleted, twice: the second time with their group."""
    topic = OffsetCommitRequestTopic(
        name="wide",
        partitions=[
            OffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata="")
            for index in range(count)
        ],
    )
    commit = OffsetCommitRequest(group_id="g", topics=[topic])
    fetch = OffsetFetchRequest(
        group_id="g", topics=None, groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]
    )
    indexes = [OffsetDeleteRequestPartition(partition_index=index) for index in range(count)]
    delete = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name="wide", partitions=indexes)]
    )
    ask(node, (commit, 9), (fetch, 9))
    web(node, "GET", "/v1/groups/g")
    web(node, "GET", "/v1/groups")
    ask(node, (delete, 0), (commit, 9), (DeleteGroupsRequest(groups_names=["g"]), 2))


def many_groups(node: Attacked, count: int) -> None:
    """Groups with an offset each, listed by each door, and followed as events."""
    node.create("grouped", 2)
    with node.connect() as caller:
        for number in range(count):
            partition = OffsetCommitRequestPartition(partition_index=number % 2, committed_offset=0)
            topics = [OffsetCommitRequestTopic(name="grouped", partitions=[partition])]
            caller.send(OffsetCommitRequest(group_id=f"g{number}", topics=topics), 8)
            if number % AT_ONCE == AT_ONCE - 1:
                for _ in range(AT_ONCE):
                    caller.skip()
    ask(node, (ListGroupsRequest(), 5), (ListGroupsRequest(states_filter=["Empty"]), 5))
    web(node, "GET", "/v1/groups")
    started = time.perf_counter()
    with urllib.request.urlopen(f"http://{node.broker.http}/v1/events", timeout=60) as events:
        for _ in range(EVENTS):
            events.readline()
    report(node, "GET /v1/events", started)


def wide_produce(node: Attacked, count: int) -> None:
    """A batch for each of many partitions, in one request."""
    batch = memoryview(make_batch(b"v"))
    batches = [PartitionProduceData(index=index, records=batch) for index in range(count)]
    topics = [TopicProduceData(name="wide", partition_data=batches)]
    ask(node, *[(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 9)] * 2)


def wide_transaction(node: Attacked, count: int) -> None:
    """A transaction over many partitions, with offsets of many, and where these lie."""
    with node.connect() as caller:
        producer = caller.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    own = {"v3_and_below_transactional_id": "x", "v3_and_below_producer_id": producer.producer_id,
           "v3_and_below_producer_epoch": producer.producer_epoch}  # fmt: skip
    topic = AddPartitionsToTxnTopic(name="wide", partitions=list(range(count)))
    end = EndTxnRequest(
        transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=True
    )
    offsets = TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="wide", partitions=[
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata="")
            for index in range(min(count, PENDING_OFFSETS))
        ])],
    )  # fmt: skip
    group = AddOffsetsToTxnRequest(
        transactional_id="x", group_id="g", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )
    ask(
        node, (AddPartitionsToTxnRequest(**own, v3_and_below_topics=[topic]), 3), (group, 3), (offsets, 3), (end, 3),
        (DescribeLogDirsRequest(topics=None), 4),
    )  # fmt: skip
    started = time.perf_counter()
    with node.connect() as caller:
        while caller.ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0).transaction_states[0].topics:
            time.sleep(PAUSE_S)
        fetched = caller.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)
    assert len(fetched.groups[0].topics[0].partitions) == min(count, PENDING_OFFSETS)
    report(node, "its markers and offsets", started)


def many_members(node: Attacked, count: int) -> None:
    """A group of KIP-848 with a partition for each of its members, who come, beat, and leave together."""
    node.create("read", count)
    ids = [f"member-{number}" for number in range(count)]
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["read"], "topic_partitions": []}
    with node.connect() as caller:
        epochs = _beat(caller, dict.fromkeys(ids, 0), **joins)
        _beat(caller, _beat(caller, epochs))
    ask(node, (ConsumerGroupDescribeRequest(group_ids=["big"]), 1))
    web(node, "GET", "/v1/groups/big")
    members = [MemberIdentity(member_id=each) for each in ids]
    ask(node, (LeaveGroupRequest(group_id="big", members=members), 5), (DeleteGroupsRequest(groups_names=["big"]), 2))


def _beat(caller: Caller, epochs: Mapping[str, int], **fields: Any) -> dict[str, int]:
    """Send a heartbeat of each member, some at once; return their epochs."""
    found: dict[str, int] = {}
    ids = list(epochs)
    for begin in range(0, len(ids), AT_ONCE):
        some = ids[begin : begin + AT_ONCE]
        for each in some:
            beat = ConsumerGroupHeartbeatRequest(group_id="big", member_id=each, member_epoch=epochs[each], **fields)
            caller.send(beat, 1)
        for each in some:
            answer = caller.answer(ConsumerGroupHeartbeatRequest, 1)
            assert answer.error_code == 0, answer
            found[each] = answer.member_epoch
    return found


def ask(node: Attacked, *requests: tuple[object, int]) -> None:
    """Ask one after the other, each in its version."""
    for request, version in requests:
        started = time.perf_counter()
        with node.connect(300) as caller:
            caller.send(request, version)
            caller.skip()
        report(node, type(request).__name__, started)


def web(node: Attacked, method: str, path: str, body: str = "") -> None:
    """Ask over HTTP for what must not be refused."""
    started = time.perf_counter()
    asked = urllib.request.Request(
        f"http://{node.broker.http}{path}", body.encode() or None, {"Content-Type": "application/json"},
        method=method,
    )  # fmt: skip
    try:
        with urllib.request.urlopen(asked, timeout=300) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    assert status < HTTP_REFUSALS, text
    report(node, f"{method} {path}", started)


def report(node: Attacked, what: str, started_s: float) -> None:
    """Print what it took, and the longest turn so far."""
    turn_s = node.samples()["loop_turn_worst_seconds"]
    took_s = time.perf_counter() - started_s
    print(f"  {what}: {took_s:.2f} s; longest turn {turn_s * 1000:.0f} ms", flush=True)


@dataclass(frozen=True, slots=True)
class Work:
    """Something long to do, and how many of its things there are at full size."""

    do: Callable[[Attacked, int], None]
    count: int
    part: int = 2
    """`./test` does a part of it, of which half at once would still hold the loop for far too long."""
    is_of_a_wide_topic: bool = False


WORK: dict[str, Work] = {
    "parked Fetches of 9 900 partitions": Work(parked_fetches, FETCHES, part=5, is_of_a_wide_topic=True),
    "topics created, described and deleted": Work(many_topics, TOPICS, part=4),
    "a table of many tablets": Work(wide_table, TABLETS),
    "offsets of a group": Work(many_offsets, PARTITIONS, is_of_a_wide_topic=True),
    "groups listed": Work(many_groups, GROUPS),
    "batches for many partitions": Work(wide_produce, PARTITIONS, is_of_a_wide_topic=True),
    "members of a group": Work(many_members, MEMBERS, part=3),
    "a transaction of many partitions": Work(wide_transaction, PARTITIONS, is_of_a_wide_topic=True),
}

def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", default="", help="Part of the names of what is to be done.")
    parser.add_argument("--stacks", action="store_true", help="Print what each turn of 18 ms or more was at.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        stacks = Path(scratch, "stacks")
        if args.stacks:
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(STACKS), os.environ.get("PYTHONPATH"))))
            os.environ["TURN_STACKS"] = str(stacks)
        for name, work in WORK.items():
            if args.part in name:
                _do(name, work)
        if stacks.exists():
            print(stacks.read_text(encoding="utf-8"))


def _do(name: str, work: Work) -> None:
    """Do the work at full size, and print what others saw."""
    with attacked(SETTINGS, turn_s_max=60) as running:
        running.create("other", 1)
        if work.is_of_a_wide_topic:
            running.create("wide", PARTITIONS)
            time.sleep(COLLECTED_S)  # the collector looks at what was made, once
            samples = running.samples()
            turn_s, pass_s = samples["loop_turn_worst_seconds"], samples["memory_pass_worst_seconds"]
            print(f"  its topic: turn {turn_s * 1000:.0f} ms, pass {pass_s * 1000:.0f} ms", flush=True)
        with measured(running) as found:
            work.do(running, work.count)
        print(f"{work.count} {name}: {found}", flush=True)


if __name__ == "__main__":
    main()
