from typing import cast

import pytest

from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.apis.fetch_sessions import EPOCH_MAX, EVICTION_IDLE_MS, FetchSessions
from pqbroker.broker.node.parts import Node
from pqbroker.conf.addresses import Address
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def request(session_id: int, epoch: int, *indexes: int, forget: tuple[int, ...] = (), offset: int = 0) -> FetchRequest:
    partitions = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=9) for index in indexes]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=partitions)] if indexes else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def indexes(sessions: FetchSessions, asked: FetchRequest) -> list[int]:
    return [wanted.index for wanted in sessions.begin(asked, 12).wanted]


def test_a_fetch_without_a_session_gets_none() -> None:
    sessions = FetchSessions(10, 100, Clock())
    fetch = sessions.begin(request(0, -1, 0, 1), 12)
    assert (fetch.session_id, fetch.is_incremental, [wanted.index for wanted in fetch.wanted]) == (0, False, [0, 1])
    assert len(sessions) == 0


def test_a_session_remembers_adds_changes_and_forgets_partitions() -> None:
    sessions = FetchSessions(10, 100, Clock())
    opened = sessions.begin(request(0, 0, 0, 1), 12)
    assert opened.session_id > 0
    assert not opened.is_incremental
    assert indexes(sessions, request(opened.session_id, 1)) == [0, 1]
    assert indexes(sessions, request(opened.session_id, 2, 2)) == [0, 1, 2]
    assert indexes(sessions, request(opened.session_id, 3, forget=(0,))) == [1, 2]
    fetch = sessions.begin(request(opened.session_id, 4, 1, offset=7), 12)
    assert fetch.is_incremental
    assert {wanted.index: wanted.offset for wanted in fetch.wanted} == {1: 7, 2: 0}


def test_what_was_sent_moves_to_the_end() -> None:
    sessions = FetchSessions(10, 100, Clock())
    fetch = sessions.begin(request(0, 0, 0, 1, 2), 12)
    fetch.session.move_to_end(fetch.wanted[0])
    assert indexes(sessions, request(fetch.session_id, 1)) == [1, 2, 0]


@pytest.mark.parametrize("epoch", [2, 3, EPOCH_MAX])
def test_a_wrong_epoch_is_refused_and_the_session_stays(epoch: int) -> None:
    sessions = FetchSessions(10, 100, Clock())
    session_id = sessions.begin(request(0, 0, 0), 12).session_id
    with pytest.raises(KafkaError) as refused:
        sessions.begin(request(session_id, epoch), 12)
    assert refused.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert indexes(sessions, request(session_id, 1)) == [0]


def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        FetchSessions(10, 100, Clock()).begin(request(5, 1), 12)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_keeps_to_names_or_to_ids() -> None:
    sessions = FetchSessions(10, 100, Clock())
    session_id = sessions.begin(request(0, 0, 0), 12).session_id
    with pytest.raises(KafkaError) as refused:
        sessions.begin(request(session_id, 1), 13)
    assert refused.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_full_fetch_with_a_session_closes_it(epoch: int) -> None:
    sessions = FetchSessions(10, 100, Clock())
    session_id = sessions.begin(request(0, 0, 0), 12).session_id
    fetch = sessions.begin(request(session_id, epoch, 0), 12)
    assert fetch.session_id != session_id
    with pytest.raises(KafkaError):
        sessions.begin(request(session_id, 1), 12)


def test_a_session_left_empty_is_closed() -> None:
    sessions = FetchSessions(10, 100, Clock())
    session_id = sessions.begin(request(0, 0, 0), 12).session_id
    assert sessions.begin(request(session_id, 1, forget=(0,)), 12).session_id == 0
    assert len(sessions) == 0


def test_the_epoch_after_the_greatest_is_1() -> None:
    sessions = FetchSessions(10, 100, Clock())
    fetch = sessions.begin(request(0, 0, 0), 12)
    fetch.session.epoch = EPOCH_MAX
    sessions.begin(request(fetch.session_id, EPOCH_MAX), 12)
    assert indexes(sessions, request(fetch.session_id, 1)) == [0]


def test_only_a_session_unused_for_long_makes_room() -> None:
    clock = Clock()
    sessions = FetchSessions(2, 100, clock)
    first, second = (sessions.begin(request(0, 0, 0), 12).session_id for _ in range(2))
    assert sessions.begin(request(0, 0, 0), 12).session_id == 0
    clock.now_ms = EVICTION_IDLE_MS
    sessions.begin(request(first, 1), 12)
    assert sessions.begin(request(0, 0, 0), 12).session_id > 0
    assert indexes(sessions, request(first, 2)) == [0]
    with pytest.raises(KafkaError):
        sessions.begin(request(second, 1), 12)


def test_no_slots_means_no_sessions() -> None:
    assert FetchSessions(0, 100, Clock()).begin(request(0, 0, 0), 12).session_id == 0


def peer() -> Peer:
    return Peer(cast(Node, None), Address("here", 1))


def is_known(sessions: FetchSessions, session_id: int) -> bool:
    return any(session.session_id == session_id for session in sessions)


def test_partitions_of_all_sessions_are_limited() -> None:
    sessions = FetchSessions(10, 5, Clock())
    first = sessions.begin(request(0, 0, 0, 1, 2), 12)
    assert sessions.begin(request(0, 0, 0, 1, 2), 12).session_id == 0
    assert sessions.begin(request(0, 0, 0, 1), 12).session_id > 0
    assert sessions.partitions == 5
    sessions.begin(request(first.session_id, 1, forget=(0,)), 12)
    assert sessions.partitions == 4
    sessions.begin(request(first.session_id, 2, 2, 7), 12)
    assert sessions.partitions == 5


def test_a_session_that_outgrows_the_room_is_closed() -> None:
    sessions = FetchSessions(10, 5, Clock())
    session_id = sessions.begin(request(0, 0, 0, 1, 2), 12).session_id
    with pytest.raises(KafkaError, match=r"pqbroker\.fetch\.session\.partitions\.max") as refused:
        sessions.begin(request(session_id, 1, 3, 4, 5), 12)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partitions) == (0, 0)
    assert sessions.begin(request(0, 0, *range(6)), 12).session_id == 0


def test_a_name_that_no_topic_can_have_is_in_no_session() -> None:
    sessions = FetchSessions(10, 5, Clock())
    asked = request(0, 0, 0)
    asked.topics[0].topic = "t" * 250
    assert sessions.begin(asked, 12).session_id == 0
    session_id = sessions.begin(request(0, 0, 0), 12).session_id
    asked.session_id, asked.session_epoch = session_id, 1
    with pytest.raises(KafkaError):
        sessions.begin(asked, 12)
    assert sessions.partitions == 0


def test_only_sessions_unused_for_long_give_their_partitions_to_others() -> None:
    clock = Clock()
    sessions = FetchSessions(10, 5, clock)
    old = [sessions.begin(request(0, 0, index), 12).session_id for index in range(5)]
    clock.now_ms = EVICTION_IDLE_MS
    sessions.begin(request(old[0], 1), 12)
    assert sessions.begin(request(0, 0, 1, 2), 12).session_id > 0
    assert [is_known(sessions, session_id) for session_id in old] == [True, False, False, True, True]


def test_a_session_ends_with_its_connection_and_not_with_another() -> None:
    sessions = FetchSessions(10, 100, Clock())
    first, second = peer(), peer()
    session_id = sessions.begin(request(0, 0, 0), 12, first).session_id
    sessions.begin(request(session_id, 1), 12, second)
    sessions.leave(first)
    assert len(sessions) == 1
    second.fetch_session_id = session_id
    sessions.leave(second)
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_sessions_of_a_closed_connection_make_room_at_once() -> None:
    sessions = FetchSessions(2, 100, Clock())
    gone = peer()
    for _ in range(2):
        sessions.begin(request(0, 0, 0), 12, gone)
    assert sessions.begin(request(0, 0, 0), 12, peer()).session_id == 0
    gone.is_gone = True
    assert sessions.begin(request(0, 0, 0), 12, peer()).session_id > 0
    assert len(sessions) == 2


def test_one_address_leaves_sessions_and_their_partitions_to_others() -> None:
    sessions = FetchSessions(16, 160, Clock())
    many, few = (Peer(cast(Node, None), Address("h", 1), holder=holder) for holder in ("many", "few"))
    opened = [sessions.begin(request(0, 0, 0), 12, many).session_id > 0 for _ in range(16)]
    assert opened == [True] * 14 + [False] * 2
    assert sessions.begin(request(0, 0, 0), 12, few).session_id > 0
    sessions = FetchSessions(16, 160, Clock())
    assert sessions.begin(request(0, 0, *range(140)), 12, many).session_id > 0
    assert sessions.begin(request(0, 0, 1), 12, many).session_id == 0
    assert sessions.begin(request(0, 0, 1, 2), 12, few).session_id > 0
