"""Staying in a group and leaving it: heartbeats, sessions, LeaveGroup, commits (clients 4.33, 4.34)."""

import pytest

from pqbroker.broker.services.coordination.classic import leaving
from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.messages import Leaver
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode
from tests.broker.services.coordination.classic.rig import LIMITS, SESSION_MS, Rig

pytestmark = pytest.mark.spec("4.33", "4.34")


def test_a_heartbeat_keeps_a_member() -> None:
    rig = Rig()
    rig.form("a")
    for _ in range(5):
        rig.advance(SESSION_MS - 1)
        assert rig.heartbeat("a") is ErrorCode.NONE
    rig.advance(SESSION_MS)
    assert rig.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_others_share_when_a_session_ends() -> None:
    rig = Rig()
    rig.form("a", "b")
    rig.advance(SESSION_MS - 1)
    rig.heartbeat("b")
    rig.advance(1)
    assert rig.group.state is GroupState.PREPARING_REBALANCE
    assert rig.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    again = rig.joined(rig.join("b"))
    assert (again.generation, again.leader, len(again.members)) == (2, "b", 1)


def test_members_heartbeat_before_they_have_their_assignment() -> None:
    rig = Rig()
    rig.enter("a")
    rig.advance(3_000)
    assert rig.group.state is GroupState.COMPLETING_REBALANCE
    assert rig.heartbeat("a") is ErrorCode.NONE


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("a", 0, ErrorCode.ILLEGAL_GENERATION),
        ("a", 2, ErrorCode.ILLEGAL_GENERATION),
        ("z", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_that_does_not_fit_is_refused(member_id: str, generation: int, error: ErrorCode) -> None:
    rig = Rig()
    rig.form("a")
    assert rig.heartbeat(member_id, generation=generation) is error
    assert rig.commit(member_id, generation=generation) is error


def test_several_leave_in_one_rebalance_each_with_its_result() -> None:
    rig = Rig()
    rig.form("a", "b", "c", "d")
    results = rig.leave("b", "nobody", "a")
    assert results == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert (rig.group.leader, rig.group.state) == ("c", GroupState.PREPARING_REBALANCE)
    rig.join("c")
    rig.join("d")
    assert rig.group.generation == 2


def test_who_is_not_there_cannot_leave_and_disturbs_nobody() -> None:
    rig = Rig()
    rig.form("a")
    assert rig.leave("z", Leaver("", None), Leaver("", "i")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    assert rig.group.state is GroupState.STABLE


def test_one_that_has_only_an_id_leaves_and_is_not_waited_for() -> None:
    rig = Rig()
    rig.form("a")
    rig.join(new="b")
    assert rig.leave("b") == [ErrorCode.NONE]
    assert rig.group.state is GroupState.STABLE
    rig.join(new="c")
    newcomer = rig.enter("d")
    rig.join("a")
    assert newcomer not in rig.answers
    rig.leave("c")
    assert rig.joined(newcomer).generation == 2


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    rig = Rig()
    rig.form("a")
    waiting = rig.enter("b")
    rig.leave("b")
    assert rig.joined(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID
    rig.join("a")
    rig.enter("c")
    rig.join("a")
    waiting_for_assignment = rig.sync("c")
    rig.leave("c")
    assert rig.synced(waiting_for_assignment).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_to_be_waited_for_leaves_and_the_rebalance_is_over() -> None:
    rig = Rig()
    rig.form("a", "b")
    newcomer = rig.enter("c")
    rig.join("a")
    rig.leave("b")
    assert rig.joined(newcomer).generation == 2


def test_a_simple_consumer_commits_only_while_there_are_no_members() -> None:
    rig = Rig()
    assert rig.commit() is ErrorCode.NONE
    rig.form("a")
    assert rig.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    rig.leave("a")
    assert rig.commit() is ErrorCode.NONE


def test_a_member_commits_in_its_generation_and_that_is_a_sign_of_life() -> None:
    rig = Rig()
    rig.form("a")
    for _ in range(3):
        rig.advance(SESSION_MS - 1)
        assert rig.commit("a", generation=1) is ErrorCode.NONE
    assert rig.commit("a", generation=-1) is ErrorCode.ILLEGAL_GENERATION


def test_a_member_commits_while_others_are_to_join_but_not_before_its_new_assignment() -> None:
    rig = Rig()
    rig.form("a")
    rig.enter("b")
    assert rig.group.state is GroupState.PREPARING_REBALANCE
    assert rig.commit("a", generation=1) is ErrorCode.NONE
    rig.join("a")
    assert rig.commit("a", generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit("a", generation=2) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.assign()
    assert rig.commit("a", generation=2) is ErrorCode.NONE


def test_a_stored_group_goes_on_in_its_generation_with_sessions_begun_anew() -> None:
    rig = Rig()
    rig.form("a", "b")
    rig.enter("c")  # a rebalance that is not over is not remembered
    rig.group = Group.load(rig.images[-1], LIMITS, rig.now_ms)
    assert (rig.group.state, rig.group.generation, rig.group.leader) == (GroupState.STABLE, 1, "a")
    rig.advance(SESSION_MS - 1)
    assert rig.heartbeat("b", generation=1) is ErrorCode.NONE
    assert rig.synced(rig.sync("b")).assignment == b"b"
    rig.advance(1)
    assert list(rig.group.members) == ["b"]


def test_an_empty_group_is_loaded_empty_and_counts_on() -> None:
    rig = Rig()
    rig.form("a")
    rig.leave("a")
    rig.group = Group.load(rig.images[-1], LIMITS, rig.now_ms)
    assert rig.group.state is GroupState.EMPTY
    rig.form("b")
    assert rig.group.generation == 3


def test_everything_that_waits_is_answered_when_the_instance_ends() -> None:
    rig = Rig()
    rig.form("a")
    joining = rig.enter("b")
    leaving.end(rig.group, ErrorCode.NOT_COORDINATOR)
    rig.perform()
    assert rig.joined(joining).error is ErrorCode.NOT_COORDINATOR
