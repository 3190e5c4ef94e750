"""Every kind of Fetch goes down both roads: answers, sessions and counters are the same."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pqbroker.broker.ground import turns
from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.kafka.apis.answer_budget import SMALL_ANSWER_BYTES
from pqbroker.broker.kafka.lanes import fetch_answers, fetch_form
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.broker.kafka.lanes.roads import TOPIC_ID, Road, note_taken, sized
from tests.broker.kafka.lanes.test_produce_roads import Roads, lies, produce
from tests.broker.wire import request_frame
from tests.support.depth import examples

VERSIONS = [11, 12, 13, 15, 16, 17, 18]
"""kcat, aiokafka and kafkajs send 11, kafka-python 12, librdkafka 16, Java 17 and 18."""
NO_SESSION = (0, -1)
_ENTRY_BYTES = 33
"""Of a partition in a flexible version."""

AskedPartition = tuple[int, int]
"""Index and offset of a partition."""


def fetch(
    topic: str, version: int, partitions: Sequence[AskedPartition], session: tuple[int, int] = NO_SESSION, **more: Any
) -> bytes:
    wait_ms = more.pop("wait_ms", 0)
    leader_epoch, bytes_max = more.pop("leader_epoch", -1), more.pop("bytes_max", 1 << 20)
    asked = [
        FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=bytes_max, current_leader_epoch=leader_epoch
        )
        for index, offset in partitions
    ]
    topics = [FetchTopic(topic=topic, topic_id=TOPIC_ID, partitions=asked)] if partitions else []
    numbers = {"min_bytes": 1, "rack_id": "r", "max_wait_ms": wait_ms, "session_id": session[0]} | more
    return request_frame(FetchRequest(topics=topics, session_epoch=session[1], **numbers), version, 99)


def count_sessions(road: Road) -> None:
    """Give session ids in order, not by chance."""
    road.node.sessions._free_id = count(1).__next__  # type: ignore[method-assign]


@pytest.fixture
def both() -> Iterator[Roads]:
    taken: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        note_taken(patch, fetch_answers.FETCH_KEY, taken)
        roads = Roads(taken)
        for road in roads.roads:
            count_sessions(road)
        yield roads
        roads.close()


def filled(both: Roads, connections: int = 2) -> str:
    """A topic of a few records in each partition."""
    topic = both.begin(connections)
    for index in (0, 1, 2):
        both.send(topic, produce(topic, 9, [(index, "one record")]), number=connections - 1)
    both.taken.clear()
    return topic


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_without_a_session_takes_the_lane_whatever_it_reads(both: Roads, version: int) -> None:
    topic = filled(both)
    stories: list[list[AskedPartition]] = [
        [(0, 0)], [(0, 1)], [(1, 0), (0, 0)], [(0, 9)], [(7, 0)], [(2, 0), (0, 1), (1, 1)],
    ]  # fmt: skip
    for partitions in stories:
        both.send(topic, fetch(topic, version, partitions))
    assert both.taken == [True] * 5


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_takes_the_lane_from_its_second_incremental_request(both: Roads, version: int) -> None:
    topic = filled(both)
    both.send(topic, fetch(topic, version, [(0, 0), (1, 0)], (0, 0)))
    stories: list[list[AskedPartition]] = [[], [(0, 1)], [(1, 1)], [], [(0, 1), (1, 1)]]
    for epoch, partitions in enumerate(stories, 1):
        both.send(topic, fetch(topic, version, partitions, (1, epoch)))
        both.send(topic, produce(topic, 9, [(0, "one record")]), number=1)
    assert both.taken == [True] * 4


@pytest.mark.parametrize("character", ["r", "é", "€", "🦊"])
def test_a_lane_keeps_a_rack_of_as_many_bytes_as_its_other_words(both: Roads, character: str) -> None:
    """A connection keeps a bounded number of bytes for its lanes, however many bytes a character takes."""
    topic, rack_bytes_max = filled(both), 0
    for rack_bytes in range(200):
        both.begin(1)
        frame = fetch(topic, 12, [(0, 0)], rack_id="r" * rack_bytes)
        both.send(topic, frame)
        both.taken.clear()
        both.send(topic, frame)
        if not both.taken:
            break
        rack_bytes_max = rack_bytes
    assert 20 < rack_bytes_max < 100
    fitting = rack_bytes_max // len(character.encode())
    for characters, taken in ((fitting, [True]), (fitting + 1, [])):
        both.begin(1)
        frame = fetch(topic, 12, [(0, 0)], rack_id=character * characters)
        both.send(topic, frame)
        both.taken.clear()
        both.send(topic, frame)
        assert both.taken == taken


def test_a_session_leaves_for_what_it_does_not_have(both: Roads) -> None:
    topic = filled(both)
    for change in (
        partial(fetch, topic, 12, [(2, 0)]),  # a partition that it lacks
        partial(fetch, topic, 12, [(0, 0), (2, 0)]),
        partial(fetch, "other", 12, [(0, 0)]),
        partial(fetch, topic, 12, [], forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[0])]),
    ):
        both.send(topic, fetch(topic, 12, [(0, 0), (1, 0)], (0, 0)))
        session = max(session.session_id for session in both.roads[0].node.sessions)
        both.send(topic, fetch(topic, 12, [], (session, 1)))
        both.taken.clear()
        both.send(topic, change(session=(session, 2)))
        assert both.taken == [False]
        for epoch in (3, 3, 9):  # right, then twice wrong
            both.send(topic, fetch(topic, 12, [], (session, epoch)))
        both.send(topic, fetch(topic, 12, [], (session + 500, 1)))


def test_other_words_leave_the_lane(both: Roads) -> None:
    topic = filled(both)
    usual = fetch(topic, 12, [(0, 0)])
    both.send(topic, usual)
    for words in ({"wait_ms": 1}, {"rack_id": "s"}, {"max_bytes": 100}, {"isolation_level": 1}, {"min_bytes": 0}):
        both.taken.clear()
        other = fetch(topic, 12, [(0, 0)], **words)
        both.send(topic, other)
        both.send(topic, other)
        both.send(topic, usual)
        assert both.taken == [False, True, True], words
    for partitions in ([(0, 0), (0, 1)], [(index, 0) for index in range(fetch_form.LANE_PARTITIONS_MAX + 1)]):
        both.taken.clear()
        both.send(topic, fetch(topic, 12, partitions))
        assert both.taken == [False]
        both.send(topic, usual)


@pytest.mark.parametrize("version", [11, 12])
def test_a_frame_that_ends_early_means_the_same_on_both_roads(both: Roads, version: int) -> None:
    topic = filled(both)
    usual = fetch(topic, version, [(0, 0)])
    for end in range(len(usual) - 40, len(usual)):
        for road in both.roads:
            road.leave()
            road.connect(1)
        both.send(topic, usual, sized(usual[4:end]))
        assert both.roads[0].wires[0].is_closed


@pytest.mark.parametrize("version", VERSIONS)
def test_another_topic_whose_name_is_as_long_has_a_lane_of_its_own(both: Roads, version: int) -> None:
    topic = filled(both)
    other = topic[:-1] + "x"
    both.run(lambda road: road.topics.create(other, 1, {}))
    for name in (topic, other, topic, other):
        both.send(name, fetch(name, version, [(0, 0)]))
    assert both.taken == [False, True, True]


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("from_end", [1, 5, 6, 6 + _ENTRY_BYTES])
def test_tagged_fields_leave_the_lane(both: Roads, version: int, from_end: int) -> None:
    """Of the request, of the topic, of each partition; here only their count is there, which no decoder takes."""
    topic = filled(both)
    usual = fetch(topic, version, [(0, 0), (1, 0)])
    both.send(topic, usual)
    position = len(usual) - from_end
    assert usual[position] == 0
    both.send(topic, usual[:position] + b"\x01" + usual[position + 1 :])
    assert both.taken == []
    assert both.roads[0].wires[0].is_closed


@pytest.mark.parametrize("version", [11, 12, 17])
def test_a_parked_fetch_is_woken_hurried_and_ended_alike(both: Roads, version: int) -> None:
    topic = filled(both, 3)

    def park(partitions: list[AskedPartition]) -> Callable[[Road], None]:
        return lambda road: road.send(0, topic, [fetch(topic, version, partitions, wait_ms=60_000)])

    for ending in (
        lambda road: road.send(2, topic, [produce(topic, 9, [(0, "one record")])]),
        lambda road: road.send(0, topic, [produce(topic, 9, [(1, "one record")])]),
        lambda road: road.topics.delete(topic),
    ):
        for road in both.roads:
            end_offset = road.topics.get(topic).partitions[0].end_offset
            park([(0, end_offset)])(road)
            assert not road.connections[0].is_idle
        both.run(ending)
        both.compare(topic)
    assert both.taken == [True, True]


def at_end(topic: str, **more: Any) -> tuple[bytes, bytes]:
    """A Fetch that is answered at once, and one like it at the ends of two partitions, which waits."""
    first, then = (fetch(topic, 12, [(0, at), (1, at)], wait_ms=60_000, **more) for at in (0, 1))
    return first, then


def park(both: Roads, topic: str, frames: tuple[bytes, bytes], numbers: Sequence[int] = (0,)) -> None:
    """Have the first of two requests open lanes of connections, and the other one park in them."""
    for number in numbers:
        both.send(topic, frames[0], number=number)
    both.taken.clear()
    for road in both.roads:
        for number in numbers:
            road.send(number, topic, frames[1:])
            assert not road.connections[number].is_idle
    assert both.taken == [True] * len(numbers)


def stir(both: Roads, act: Callable[[Road], Any], is_done: Callable[[Road], bool]) -> None:
    """Act on both until something is done, though a Fetch stays parked."""

    async def acted(road: Road) -> None:
        act(road)
        async with asyncio.timeout(20):
            while not is_done(road):  # noqa: ASYNC110 (nobody sets an event)
                await asyncio.sleep(0)
        for _ in range(9):
            await asyncio.sleep(0)

    for road in both.roads:
        both.runner.run(acted(road))


def test_a_parked_fetch_waits_for_its_bytes_or_its_deadline(both: Roads) -> None:
    topic = filled(both, 3)
    park(both, topic, at_end(topic, min_bytes=100))
    one = produce(topic, 9, [(1, "one record")])
    stir(
        both, lambda road: road.send(2, topic, [one]),
        lambda road: road.topics.get(topic).partitions[1].end_offset == 2,
    )  # fmt: skip
    assert not any(road.connections[0].is_idle for road in both.roads)
    both.send(topic, produce(topic, 9, [(0, "one record")]), number=2)
    for _ in range(3):
        both.send(topic, fetch(topic, 12, [(2, 1)], wait_ms=1))


def test_a_fetch_in_a_lane_that_is_over_leaves_no_watcher_and_no_timer(both: Roads) -> None:
    """However it ended: `compare` sees the watchers."""
    topic = filled(both, 3)

    def due(road: Road) -> list[asyncio.TimerHandle]:
        scheduled: list[asyncio.TimerHandle] = both.runner.get_loop()._scheduled  # type: ignore[attr-defined]
        return [each for each in scheduled if not each.cancelled() and each.when() > both.runner.get_loop().time() + 50]

    before = len(due(both.roads[0]))
    for ending in (
        lambda road: road.send(2, topic, [produce(topic, 9, [(0, "one record")])]),
        lambda road: road.send(0, topic, [produce(topic, 9, [(2, "one record")])]),
        lambda road: road.leave(),
    ):
        end_offset = both.roads[0].topics.get(topic).partitions[0].end_offset
        frames = [fetch(topic, 12, [(0, offset)], wait_ms=60_000) for offset in (0, end_offset)]
        park(both, topic, (frames[0], frames[1]))
        assert len(due(both.roads[0])) == before + 2
        both.run(ending)
        both.compare(topic)
        assert len(due(both.roads[0])) == before


def test_another_connection_continues_a_session_whose_fetch_is_parked(both: Roads) -> None:
    topic = filled(both, 3)
    both.send(topic, fetch(topic, 12, [(0, 0), (1, 0)], (0, 0), wait_ms=60_000))
    both.send(topic, fetch(topic, 12, [(0, 1), (1, 0)], (1, 1), wait_ms=60_000))
    for road in both.roads:
        road.send(0, topic, [fetch(topic, 12, [(0, 1), (1, 1)], (1, 2), wait_ms=60_000)])
    other = fetch(topic, 12, [(0, 0), (1, 77)], (1, 3))
    stir(both, lambda road: road.send(1, topic, [other]), lambda road: road.connections[1].is_idle)
    assert not any(road.connections[0].is_idle for road in both.roads)
    both.send(topic, produce(topic, 9, [(0, "one record")]), number=2)
    assert both.taken == [True]


def test_partitions_in_memory_and_on_disk_are_read_alike(both: Roads) -> None:
    """A read that has to wait is handed over to the handler, behind those that had not."""
    topic = filled(both, 3)
    frame = fetch(topic, 12, [(0, 0), (1, 0), (2, 0)])
    both.send(topic, frame)

    def drop(road: Road, *indexes: int) -> None:
        for index in indexes:
            assert road.topics.get(topic).partitions[index].writer.drop_content()

    for cold in ((1,), (0,), (0, 2), (2,)):
        both.run(lambda road, cold=cold: drop(road, *cold))  # type: ignore[misc]
        both.send(topic, frame)
    assert both.taken == [True] * 4


def test_a_fetch_in_a_lane_reads_less_where_memory_for_answers_is_short(both: Roads) -> None:
    topic = filled(both, 3)
    for _ in range(4):
        both.send(topic, produce(topic, 9, [(0, "large")]), number=2)
    frame = fetch(topic, 12, [(0, 0), (1, 0)])
    both.send(topic, frame)
    sizes = []
    for free in (10, 1 << 30):
        for road in both.roads:
            road.node.answers.free = free
            road.wires[0].written.clear()
        both.send(topic, frame)
        sizes.append(len(both.roads[0].wires[0].written))
    assert sizes[0] <= SMALL_ANSWER_BYTES < sizes[1]
    assert both.taken == [True] * 2


class Rules:
    """Reading is allowed, until it is forbidden."""

    revision = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return operation is not AclOperation.READ or not self.revision

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return True


def test_a_parked_fetch_in_a_lane_gives_nothing_that_was_forbidden_meanwhile(both: Roads) -> None:
    topic, rules = filled(both, 3), Rules()
    for road in both.roads:
        object.__setattr__(road.node, "access", rules)  # a node is given its rules when it starts
    park(both, topic, at_end(topic))
    rules.revision += 1
    both.send(topic, produce(topic, 9, [(0, "one record")]), number=2)
    assert both.roads[0].node.metrics.errors[ErrorCode.TOPIC_AUTHORIZATION_FAILED] == 2


def test_of_many_fetches_that_one_commit_wakes_each_turn_has_some(
    both: Roads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    topic = filled(both, 6)
    park(both, topic, at_end(topic), range(5))
    road, answered = both.roads[0], list[int]()

    async def count_turns() -> None:
        road.send(5, topic, [produce(topic, 9, [(0, "one record")])])
        while len(answered) < 100 and (not answered or answered[-1] < 5):
            await asyncio.sleep(0)
            answered.append(sum(connection.is_idle for connection in road.connections[:5]))

    both.runner.run(count_turns())
    assert answered[-1] == 5
    assert all(after - before <= 1 for before, after in itertools.pairwise([0, *answered]))


def test_a_defect_in_a_woken_fetch_is_its_answer(both: Roads, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = filled(both, 3)
    park(both, topic, at_end(topic))
    monkeypatch.setattr(fetch_answers, "visible_ends", None)
    road = both.roads[0]
    wire = road.wires[0]
    wire.written.clear()
    both.runner.run(both._run(road, lambda road: road.send(2, topic, [produce(topic, 9, [(0, "one record")])])))
    response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert bytes(wire.written).endswith(b"".join(map(bytes, encoder(FetchResponse, 12)(response, lambda _: None))))


@pytest.mark.parametrize("version", [11, 12])
def test_a_session_of_more_partitions_than_a_lane_names_is_answered_alike(both: Roads, version: int) -> None:
    """The answers of a lane have one byte for their count."""
    count = 130
    topic = both.begin(2)[:-1] + "w"
    both.run(lambda road: road.topics.create(topic, count, {}))
    every = list(range(count))
    both.send(topic, fetch(topic, version, [(index, 0) for index in every], (0, 0)))
    for epoch in (1, 2, 3):
        for start in (0, 65):
            parts = [(index, "one record") for index in every[start : start + 65]]
            both.send(topic, produce(topic, 9, parts), number=1)
        both.send(topic, fetch(topic, version, [], (1, epoch)))


def test_the_topic_the_leader_epoch_and_limits_are_looked_at_each_time(both: Roads) -> None:
    topic = filled(both)
    limits: list[dict[str, Any]] = [{"leader_epoch": 77}, {"leader_epoch": 0}, {"bytes_max": 0}, {"bytes_max": 1}]
    for more in limits:
        both.send(topic, fetch(topic, 17, [(0, 0), (1, 0)], **more))
    both.run(lambda road: road.topics.get(topic).partitions[0].retention.delete_before(1))
    both.send(topic, fetch(topic, 17, [(0, 0), (1, 0)]))
    both.run(lambda road: road.topics.delete(topic))
    both.send(topic, fetch(topic, 12, [(0, 0)]))
    both.run(lambda road: road.topics.create(topic, 1, {}))
    both.send(topic, fetch(topic, 12, [(0, 0), (1, 0)]))
    assert all(both.taken[:4])


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_lies_in_a_fetch_mean_the_same_on_both_roads(data: st.DataObject) -> None:
    both = Roads([])
    for road in both.roads:
        count_sessions(road)
    try:
        topic = filled(both)
        frame = fetch(topic, data.draw(st.sampled_from([11, 12, 17])), [(0, 0), (1, 1)])
        both.send(topic, frame)
        for _ in range(3):
            lie = data.draw(lies(frame))
            if lie[4:6] != b"\0\x01":
                continue  # another API, whose answers may differ between nodes
            both.run(lambda road, lie=lie: road.send(0, topic, [lie, frame]))  # type: ignore[misc]
            both.compare(topic)
    finally:
        both.close()
