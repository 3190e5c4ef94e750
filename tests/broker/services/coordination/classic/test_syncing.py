"""The assignment: given out once it is stored, and what comes between (clients 4.33)."""

import pytest

from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode
from tests.broker.services.coordination.classic.rig import REBALANCE_MS, SESSION_MS, Rig

pytestmark = pytest.mark.spec("4.33")


def completing(*names: str, stores_at_once: bool = True) -> Rig:
    """A group whose members have the generation and no assignment yet."""
    rig = Rig(stores_at_once=stores_at_once)
    for name in names:
        rig.enter(name)
    rig.end_rebalance()
    assert rig.group.state is GroupState.COMPLETING_REBALANCE
    return rig


def test_everybody_gets_their_part_when_the_leader_has_brought_it() -> None:
    rig = completing("a", "b", "c")
    follower = rig.sync("b")
    assert follower not in rig.answers
    leader = rig.sync("a", {"a": b"0", "b": b"1"})
    assert rig.synced(leader).assignment == b"0"
    assert rig.synced(follower).assignment == b"1"
    assert (rig.synced(follower).protocol, rig.synced(follower).protocol_type) == ("range", "consumer")
    assert rig.synced(rig.sync("c")).assignment == b""
    assert rig.group.state is GroupState.STABLE


def test_who_asks_again_in_a_stable_group_is_answered_at_once() -> None:
    rig = Rig()
    rig.form("a", "b")
    assert rig.synced(rig.sync("b")).assignment == b"b"
    assert rig.synced(rig.sync("a", {"b": b"other"})).assignment == b"a"
    assert rig.synced(rig.sync("b")).assignment == b"b"


def test_nothing_is_given_out_before_it_is_stored() -> None:
    rig = completing("a", "b", stores_at_once=False)
    follower, leader = rig.sync("b"), rig.sync("a", {"a": b"0", "b": b"1"})
    assert not {follower, leader} & rig.answers.keys()
    assert rig.group.state is GroupState.COMPLETING_REBALANCE
    rig.finish_stores()
    assert rig.synced(follower).assignment == b"1"
    assert [member.assignment for member in rig.images[-1].members] == [b"0", b"1"]


def test_when_the_store_fails_all_are_told_and_join_again() -> None:
    rig = completing("a", "b", stores_at_once=False)
    tickets = [rig.sync("b"), rig.sync("a", {"a": b"0", "b": b"1"})]
    rig.finish_stores(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [rig.synced(ticket).error for ticket in tickets] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert rig.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_store_that_ends_after_the_next_rebalance_began_gives_nothing_out() -> None:
    rig = completing("a", stores_at_once=False)
    leader = rig.sync("a", {"a": b"0"})
    rig.enter("b")
    assert rig.synced(leader).error is ErrorCode.REBALANCE_IN_PROGRESS
    rig.finish_stores()
    assert rig.group.state is GroupState.PREPARING_REBALANCE
    rig.join("a")
    assert (rig.group.state, rig.group.generation) == (GroupState.COMPLETING_REBALANCE, 2)


def test_a_store_that_fails_after_the_next_generation_began_disturbs_nobody() -> None:
    rig = completing("a", stores_at_once=False)
    rig.sync("a", {"a": b"0"})
    rig.enter("b")
    rig.join("a")
    rig.finish_stores(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (rig.group.state, rig.group.generation) == (GroupState.COMPLETING_REBALANCE, 2)


def test_the_leader_may_bring_its_assignment_twice() -> None:
    rig = completing("a", stores_at_once=False)
    first, second = rig.sync("a", {"a": b"0"}), rig.sync("a", {"a": b"0"})
    assert rig.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    rig.finish_stores()
    assert rig.synced(second).assignment == b"0"


def test_a_sync_while_members_are_to_join_is_refused() -> None:
    rig = Rig()
    rig.form("a", "b")
    rig.leave("b")
    rig.enter("c")
    assert rig.synced(rig.sync("a")).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("member_id", "options", "error"),
    [
        ("z", {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", {"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ("a", {"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ("a", {"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("a", {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("a", {"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(member_id: str, options: dict[str, str], error: ErrorCode) -> None:
    rig = Rig()
    rig.form("a")
    assert rig.synced(rig.sync(member_id, **options)).error is error  # type: ignore[arg-type]


def test_a_sync_that_names_the_groups_protocol_is_taken() -> None:
    rig = Rig()
    rig.form("a")
    assert rig.synced(rig.sync("a", protocol="range", protocol_type="consumer")).error is ErrorCode.NONE


def test_who_does_not_ask_for_an_assignment_within_the_rebalance_timeout_is_dropped() -> None:
    rig = completing("a", "b", "c")
    waiting = rig.sync("b")
    for _ in range(10):
        rig.advance(REBALANCE_MS // 10 - 1)
        assert rig.heartbeat("c") is ErrorCode.NONE
        rig.heartbeat("a")
    assert waiting not in rig.answers
    rig.advance(10)
    assert rig.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(rig.group.members) == ["b"]
    assert rig.group.leader == "b"


def test_members_that_wait_for_their_assignment_are_alive() -> None:
    rig = completing("a", "b")
    rig.sync("b")
    for _ in range(8):
        rig.advance(SESSION_MS // 2)
        rig.heartbeat("a")
    assert list(rig.group.members) == ["a", "b"]


def test_a_session_begins_anew_with_the_answer() -> None:
    rig = completing("a", "b")
    rig.sync("b")
    rig.advance(SESSION_MS - 1)
    rig.sync("a", {})
    rig.advance(SESSION_MS - 1)
    assert list(rig.group.members) == ["a", "b"]
    rig.advance(1)
    assert list(rig.group.members) == []


def test_members_that_wait_for_others_to_join_are_alive() -> None:
    rig = Rig()
    rig.form("a", "b")
    rig.enter("c")
    rig.join("a")
    for _ in range(8):
        rig.advance(SESSION_MS // 2)
        assert rig.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(rig.group.members) == ["a", "b", "c"]
