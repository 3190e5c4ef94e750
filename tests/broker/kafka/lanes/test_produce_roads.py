"""Every kind of Produce goes down both roads: answers, stored bytes and counters are the same."""

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pqbroker.broker.kafka.apis.lane import LANES_MAX
from pqbroker.broker.kafka.lanes import produce_answers, produce_lane
from pqbroker.broker.kafka.net import dispatch
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pqbroker.protocol.messages.end_txn import EndTxnRequest
from pqbroker.protocol.messages.fetch import FetchRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.storage.pool_status import Colour
from tests.broker.conftest import Clock
from tests.broker.kafka.lanes.roads import TOPIC_ID, Road, note_taken
from tests.broker.wire import request_frame
from tests.support.depth import examples

TIME_MS = 1_700_000_000_000
VERSIONS = [7, 8, 9, 10, 11, 12, 13]
"""kcat, aiokafka and kafkajs send 7, kafka-python 9, librdkafka 10, Java 11 and 13."""
PARTITIONS = 3
SCHEMA = '[{"name": "a", "type": "string"}]'


def batch(*values: bytes | None, key: bytes | None = b"k", **options: Any) -> bytes:
    records = [Record(index, TIME_MS + index, key, value, ()) for index, value in enumerate(values or (b"v",))]
    return bytes(encode_batch(records, **options))


def idempotent(sequence: int, epoch: int = 0, count: int = 1) -> bytes:
    return batch(*[b"i"] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def changed(data: bytes, position: int) -> bytes:
    return data[:position] + bytes((data[position] ^ 0x55,)) + data[position + 1 :]


BATCHES: dict[str, bytes | None] = {
    "one record": batch(),
    "many records": batch(*[b"m" * 40] * 20),
    "gzip": batch(b"g" * 400, codec=1),
    "zstd": batch(b"z" * 400, codec=4),
    "first": idempotent(0),
    "next": idempotent(1, count=2),
    "after next": idempotent(3),
    "gap": idempotent(9),
    "epoch 1": idempotent(0, epoch=1),
    "epoch 1, not the first": idempotent(5, epoch=1),
    "no key": batch(key=None),
    "long": batch(*[b"m"] * 300),
    "long without keys": batch(*[b"m"] * 300, key=None),
    "gzip without keys": batch(b"g" * 400, codec=1, key=None),
    "large": batch(b"l" * 40_000),
    "two batches": batch() + batch(),
    "bad CRC": changed(batch(), 40),
    "transactional": batch(attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0),
    "control": batch(attributes=0x20),
    "append time": batch(attributes=0x08),
    "negative attributes": batch(attributes=-1),
    "codec 5": batch(attributes=5),
    "magic 1": changed(batch(), 16),
    "too short": batch()[:30],
    "cut": batch()[:-1],
    "longer": batch() + b"\0",
    "counts too many": batch()[:57] + struct.pack(">i", 9) + batch()[61:],
    "empty": b"",
    "null": None,
}
CONFIGS: dict[str, dict[str, str]] = {
    "default": {},
    "small batches": {"max.message.bytes": "300"},
    "append time": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "quota": {"pq.write.speed.bytes": "100"},
    "old times": {"message.timestamp.before.max.ms": "0"},
    "inactive": {"pq.inactive.partitions": "1"},
}


def produce(
    topic: str, version: int, parts: list[tuple[int, str]], acks: int = -1, client: bytes = b"c", timeout_ms: int = 9
) -> bytes:
    data = [
        PartitionProduceData(index=index, records=None if (made := BATCHES[kind]) is None else memoryview(made))
        for index, kind in parts
    ]
    asked = TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=data)
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[asked])
    return request_frame(request, version, correlation_id=77, client_id=client)


class Roads:
    """Both, and what the lanes took."""

    def __init__(self, taken: list[bool]) -> None:
        self.taken = taken
        self.clock = Clock()
        self.roads = [Road(self.clock, has_lanes=True), Road(self.clock, has_lanes=False)]
        self.runner = asyncio.Runner()
        self.topics = 0
        self.run(lambda road: road.start())

    def run(self, act: Callable[[Road], Any]) -> None:
        for road in self.roads:
            self.runner.run(self._run(road, act))

    async def _run(self, road: Road, act: Callable[[Road], Any]) -> None:
        acted = act(road)
        if asyncio.iscoroutine(acted):
            await acted
        await road.settle()

    def begin(self, connections: int = 1, config: Mapping[str, str] = MappingProxyType({})) -> str:
        """A topic that neither has, and new connections to each."""
        self.topics += 1
        name = f"t{self.topics:06}"
        for road in self.roads:
            road.leave()
            self.runner.run(road.topics.create(name, PARTITIONS, {**config}))
            road.connect(connections)
        self.taken.clear()
        return name

    def send(self, topic: str, *pieces: bytes, number: int = 0) -> None:
        """Pieces in one turn, to both; both must have seen the same afterwards."""
        self.run(lambda road: road.send(number, topic, pieces))
        self.compare(topic)

    def compare(self, topic: str) -> None:
        lanes, none = (road.seen(topic) for road in self.roads)
        assert lanes == none

    def close(self) -> None:
        self.run(lambda road: road.stop())
        self.runner.close()


@pytest.fixture(scope="module")
def both() -> Iterator[Roads]:
    taken: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        note_taken(patch, produce_answers.API_KEY, taken)
        roads = Roads(taken)
        yield roads
        roads.close()


@pytest.mark.parametrize("acks", [-1, 1, 0])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_words_take_the_lane_in_every_version(both: Roads, version: int, acks: int) -> None:
    topic = both.begin()
    two = [(1, "many records"), (0, "after next")]
    for parts in ([(0, "first")], [(0, "next")], [(0, "next")], two, [(2, "large")]):
        both.send(topic, produce(topic, version, parts, acks))
    assert both.taken == [True] * 4


@pytest.mark.parametrize("version", [7, 9, 13])
@pytest.mark.parametrize("kind", [kind for kind in BATCHES if kind not in {"one record", "first", "epoch 1"}])
def test_every_kind_of_batch_is_answered_as_on_the_other_road(both: Roads, kind: str, version: int) -> None:
    for acks in (-1, 0):
        topic = both.begin()
        for parts in ([(0, "first")], [(0, kind)], [(0, "first")], [(1, "one record"), (0, kind), (2, "gzip")]):
            both.send(topic, produce(topic, version, parts, acks))


LEFT_FOR_A_BATCH = [
    "two batches", "bad CRC", "transactional", "control", "append time", "negative attributes", "codec 5", "magic 1",
    "too short", "cut", "longer", "counts too many", "empty", "null",
]  # fmt: skip


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("kind", LEFT_FOR_A_BATCH)
def test_a_batch_that_fails_its_checks_is_left_before_another_is_enqueued(both: Roads, kind: str, version: int) -> None:
    topic = both.begin()
    both.send(topic, produce(topic, version, [(0, "one record")]))
    both.send(topic, produce(topic, version, [(1, "one record"), (0, kind)]))
    assert both.taken == [False]


@pytest.mark.parametrize("kind", ["first", "next", "gap", "epoch 1, not the first", "zstd"])
def test_what_only_the_partition_can_decide_takes_the_lane(both: Roads, kind: str) -> None:
    topic = both.begin()
    both.send(topic, produce(topic, 9, [(0, "first")]))
    both.send(topic, produce(topic, 9, [(0, kind)]))
    assert both.taken == [True]


def test_other_words_leave_the_lane_and_open_one_of_their_own(both: Roads) -> None:
    topic, other = both.begin(), both.begin()
    usual: dict[str, Any] = {"topic": other, "version": 9, "parts": [(0, "one record")]}
    both.send(other, produce(**usual))
    for words in ({"client": b"d"}, {"timeout_ms": 10}, {"acks": 1}, {"acks": 0}, {"version": 10}, {"topic": topic}):
        both.taken.clear()
        both.send(other, produce(**usual | words))
        both.send(other, produce(**usual | words))
        both.send(other, produce(**usual))
        assert both.taken == [False, True, True], words


def test_a_connection_has_lanes_for_the_forms_that_it_used_last(both: Roads) -> None:
    topic = both.begin()
    first, *others = (produce(topic, 9, [(0, "one record")], timeout_ms=number) for number in range(LANES_MAX + 1))
    for frame in (first, *others, *others):
        both.send(topic, frame)
    assert both.taken == [False] * LANES_MAX + [True] * LANES_MAX
    both.taken.clear()
    for frame in (first, others[-1], others[0], first):
        both.send(topic, frame)
    assert both.taken == [False, True, False, True]


def in_transaction(
    topic: str, version: int, parts: list[tuple[int, int]], claim: tuple[int, int], name: str = "x"
) -> bytes:
    """A Produce of a transactional producer; of each partition the sequence of its batch."""
    producer_id, epoch = claim
    data = [
        PartitionProduceData(
            index=index,
            records=memoryview(
                batch(attributes=0x10, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            ),
        )
        for index, sequence in parts
    ]
    asked = TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=9, transactional_id=name, topic_data=[asked])
    return request_frame(request, version, correlation_id=77, client_id=b"c")


def begin_transaction(both: Roads, topic: str, *partitions: int) -> tuple[int, int]:
    """Initialise a producer of the id x, and add partitions; return its id and epoch, which both nodes give alike."""
    both.send(topic, request_frame(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4))
    images = [road.node.cell.current.transactional_producers.find("x") for road in both.roads]
    (claim,) = {(image.producer_id, image.epoch) for image in images if image is not None}
    if partitions:
        added = AddPartitionsToTxnTopic(name=topic, partitions=[*partitions])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=claim[0], v3_and_below_producer_epoch=claim[1],
            v3_and_below_topics=[added],
        )  # fmt: skip
        both.send(topic, request_frame(request, 3))
    return claim


@pytest.mark.parametrize("config", [{}, {"cleanup.policy": "compact"}])
@pytest.mark.parametrize("version", VERSIONS)
def test_batches_of_an_open_transaction_take_the_lane(both: Roads, version: int, config: dict[str, str]) -> None:
    topic = both.begin(config=config)
    claim = begin_transaction(both, topic, 0, 1)
    for sequence in range(3):
        both.send(topic, in_transaction(topic, version, [(0, sequence), (1, sequence)], claim))
    assert both.taken == [True] * 2


@pytest.mark.parametrize("version", [9, 11, 12, 13])
def test_a_partition_that_is_not_added_and_another_epoch_are_dispatched(both: Roads, version: int) -> None:
    topic = both.begin()
    claim = begin_transaction(both, topic, 0)
    both.send(topic, in_transaction(topic, version, [(0, 0)], claim))
    both.send(topic, in_transaction(topic, version, [(0, 1), (2, 0)], claim))
    both.send(topic, in_transaction(topic, version, [(0, 2)], (claim[0], claim[1] + 1)))
    both.send(topic, in_transaction(topic, version, [(0, 2)], (claim[0] + 1, claim[1])))
    assert both.taken == [False] * 3
    both.send(topic, in_transaction(topic, version, [(0, 2)], claim))
    assert both.taken[3:] == [True]


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("is_commit", [False, True])
def test_batches_behind_the_end_of_a_transaction_are_dispatched(both: Roads, version: int, is_commit: bool) -> None:
    topic = both.begin()
    claim = begin_transaction(both, topic, 0)
    end = EndTxnRequest(
        transactional_id="x", producer_id=claim[0], producer_epoch=claim[1], committed=is_commit
    )
    frames = [in_transaction(topic, version, [(0, sequence)], claim) for sequence in range(3)]
    both.send(topic, frames[0])
    both.send(topic, frames[1], request_frame(end, 4), frames[2])
    assert both.taken == [True, False]


@pytest.mark.parametrize("version", [11, 12])
def test_a_batch_beside_the_end_of_its_transaction_is_dispatched(both: Roads, version: int) -> None:
    topic = both.begin(2)
    claim = begin_transaction(both, topic, 0)
    end = EndTxnRequest(transactional_id="x", producer_id=claim[0], producer_epoch=claim[1], committed=True)
    frames = [in_transaction(topic, version, [(0, sequence)], claim) for sequence in range(3)]

    async def overlap(road: Road) -> None:
        road.send(1, topic, [request_frame(end, 4)])
        while not any(ids.is_busy for ids in _residents(road)):  # noqa: ASYNC110 (a state, nobody sets an event)
            await asyncio.sleep(0)
        road.send(0, topic, [frames[2]])

    both.send(topic, frames[0])
    both.send(topic, frames[1])
    both.run(overlap)
    both.compare(topic)
    assert both.taken == [True, False]


def _residents(road: Road) -> list[Any]:
    producers = road.node.cell.current.transactional_producers
    return [resident for ids in producers._ids for resident in ids.residents.values()]


def test_a_batch_without_a_transaction_has_a_lane_of_its_own(both: Roads) -> None:
    topic = both.begin()
    claim = begin_transaction(both, topic, 0)
    data = [PartitionProduceData(index=0, records=memoryview(batch()))]
    asked = TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=data)
    plain = request_frame(ProduceRequest(acks=-1, timeout_ms=9, transactional_id="x", topic_data=[asked]), 9)
    for frame in (plain, plain, in_transaction(topic, 9, [(0, 0)], claim), produce(topic, 9, [(0, "transactional")])):
        both.send(topic, frame)
    assert both.taken[0] is True
    assert both.taken[-1] is False


def test_more_topics_have_no_lane(both: Roads) -> None:
    topic = both.begin()
    data = [PartitionProduceData(index=0, records=memoryview(batch()))]
    asked = TopicProduceData(name=topic, partition_data=data)
    for request in (
        ProduceRequest(acks=-1, topic_data=[asked, asked]),
        ProduceRequest(acks=-1, topic_data=[]),
        ProduceRequest(acks=2, topic_data=[asked]),
    ):
        for _ in range(2):
            both.send(topic, request_frame(request, 9))
    assert both.taken == []


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("change", CONFIGS)
def test_another_config_leaves_the_lane_once(both: Roads, change: str, version: int) -> None:
    topic = both.begin()
    parts = [(1, "many records"), (0, "one record")]
    both.send(topic, produce(topic, version, parts))
    both.run(lambda road: road.topics.reconfigure(topic, lambda _: CONFIGS[change]))
    for _ in range(3):
        both.send(topic, produce(topic, version, parts))
        both.send(topic, produce(topic, version, [(0, "no key")]))
        both.clock.now_ms += 10
    assert both.taken[0] is (change == "default")  # which is no other config
    assert any(both.taken[1:])


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("version", [7, 9, 13])
@pytest.mark.parametrize("kind", ["no key", "long", "long without keys", "gzip", "gzip without keys", "zstd", "gap"])
def test_a_batch_for_a_compacted_topic_takes_the_lane_and_its_keys_are_looked_at(
    both: Roads, kind: str, version: int, acks: int
) -> None:
    topic = both.begin(config={"cleanup.policy": "compact"})
    both.send(topic, produce(topic, version, [(0, "first")], acks))
    both.send(topic, produce(topic, version, [(1, "one record"), (0, kind), (0, "next"), (2, "many records")], acks))
    both.send(topic, produce(topic, version, [(0, kind)], acks), produce(topic, version, [(0, "after next")], acks))
    is_refused = "without" in kind or kind in ("no key", "gap")
    assert both.taken == ([True] if acks == 0 and is_refused else [True] * 3)  # the connection is closed


@pytest.mark.parametrize("change", ["compression", "values"])
def test_a_compacted_topic_whose_batches_need_more_has_no_lane(both: Roads, change: str) -> None:
    more = {"compression": {"compression.type": "gzip"}, "values": {"pq.schema": SCHEMA, "value.invalid": "refuse"}}
    topic = both.begin(config={"cleanup.policy": "compact", **more[change]})
    for _ in range(3):
        both.send(topic, produce(topic, 9, [(0, "one record")]))
    assert both.taken == []



@pytest.mark.parametrize("version", [9, 13])
def test_a_topic_deleted_and_created_again_is_found_again(both: Roads, version: int) -> None:
    topic = both.begin()
    frame = produce(topic, version, [(0, "one record")])
    both.send(topic, frame, frame)
    both.run(lambda road: road.topics.delete(topic))
    both.send(topic, frame)
    both.run(lambda road: road.topics.create(topic, 1, {}))
    for index in (0, 0, 2):
        both.send(topic, produce(topic, version, [(index, "one record")]))
    assert both.taken[:2] == [True, False]


def test_a_lost_tablet_refuses_in_the_lane_too(both: Roads) -> None:
    topic = both.begin()
    frame = produce(topic, 9, [(0, "one record")])
    both.send(topic, frame)
    both.run(lambda road: road.topics.get(topic).partitions[0].stop())
    both.send(topic, frame)


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_refused_commit_and_a_full_disk_are_answered_alike(both: Roads, acks: int) -> None:
    topic = both.begin(2)
    frame = produce(topic, 9, [(0, "first"), (1, "one record")], acks)
    both.send(topic, frame)
    both.run(lambda road: road.engine.faults.refuse_next())
    both.send(topic, produce(topic, 9, [(0, "next")], acks), produce(topic, 9, [(0, "after next")], acks))
    both.run(lambda road: road.engine.tell_colour(Colour.YELLOW_STOP))
    both.send(topic, frame, number=1)
    both.send(topic, frame, number=1)
    both.run(lambda road: road.engine.tell_colour(None))


@pytest.fixture
def apart() -> Iterator[Roads]:
    roads = Roads([])
    yield roads
    roads.close()


@pytest.mark.parametrize("place", ["find_partition", "ProduceInLane", "open_lane"])
@pytest.mark.parametrize("acks", [-1, 0])
def test_a_defect_in_a_lane_is_answered_and_ends_the_lane(apart: Roads, acks: int, place: str) -> None:
    topic, (road, _) = apart.begin(), apart.roads
    asked = produce(topic, 7, [(0, "one record")], acks)

    def send() -> int:
        """How many bytes are answered."""
        apart.runner.run(apart._run(road, lambda road: road.send(0, topic, [asked])))
        answered = len(road.wires[0].written)
        road.wires[0].written.clear()
        return answered

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    stored = 0
    if place != "open_lane":
        send()
        stored = 1
    with pytest.MonkeyPatch.context() as patch:
        if place == "open_lane":
            patch.setattr(dispatch.Dispatcher, "_open_lane", fail)
        else:
            patch.setattr(produce_lane, place, fail)
        assert bool(send()) is (acks != 0)
    assert road.node.metrics.errors[ErrorCode.UNKNOWN_SERVER_ERROR] == 1
    assert not road.connections[0].peer.lanes
    assert road.wires[0].is_closed is (acks == 0)  # nothing else says it
    if acks:
        assert send()
        stored += 1
    assert road.topics.get(topic).partitions[0].end_offset == stored


def test_requests_between_keep_the_order_of_answers(both: Roads) -> None:
    topic = both.begin()
    one = produce(topic, 9, [(0, "one record")])
    fetch = request_frame(FetchRequest(topics=[]), 12, 5)
    both.send(topic, one, one + one + fetch + one, one[:9], one[9:])
    assert both.taken == [True] * 4


def lies(frame: bytes) -> st.SearchStrategy[bytes]:
    """The frame with one byte changed, more, or fewer of them, its length true.

    Not the API's key: another API's answer may tell what no two nodes have in common, such as the cluster's id.
    """
    body = frame[4:]
    made = st.one_of(
        st.builds(lambda at, by: body[:at] + bytes((body[at] ^ by,)) + body[at + 1 :],
                  st.integers(2, len(body) - 1), st.integers(1, 255)),
        st.integers(0, len(body) - 1).map(lambda end: body[:end]),
        st.binary(min_size=1, max_size=5).map(lambda more: body + more),
    )  # fmt: skip
    return made.map(lambda each: struct.pack(">i", len(each)) + each)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_lies_in_a_frame_mean_the_same_on_both_roads(both: Roads, data: st.DataObject) -> None:
    topic = both.begin()
    version = data.draw(st.sampled_from(VERSIONS))
    frame = produce(topic, version, [(0, "one record"), (1, "one record")])
    both.send(topic, frame)
    for _ in range(2):
        both.send(topic, data.draw(lies(frame)), frame)


ACKS = st.sampled_from((-1, -1, 1, 0))
PARTS = st.lists(st.tuples(st.integers(-1, PARTITIONS), st.sampled_from(sorted(BATCHES))), min_size=1, max_size=3)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_story_is_the_same_on_both_roads(data: st.DataObject) -> None:
    both = Roads([])
    try:
        tell(both, data)
    finally:
        both.close()


def tell(both: Roads, data: st.DataObject) -> None:
    topic = both.begin(2)
    versions = data.draw(st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=2))
    for _ in range(data.draw(st.integers(1, 12))):
        event = data.draw(st.sampled_from(["send"] * 6 + ["configure", "time"]))
        if event == "send":
            frames = [
                produce(topic, data.draw(st.sampled_from(versions)), data.draw(PARTS), data.draw(ACKS))
                for _ in range(data.draw(st.integers(1, 4)))
            ]
            cut = data.draw(st.integers(0, len(frames[0])))
            pieces = (frames[0][:cut], frames[0][cut:] + b"".join(frames[1:]))
            both.send(topic, *pieces, number=data.draw(st.integers(0, 1)))
        elif event == "configure":
            config = CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))]
            both.run(lambda road, config=config: road.topics.reconfigure(topic, lambda _: config))  # type: ignore[misc]
        else:
            both.clock.now_ms += 500
