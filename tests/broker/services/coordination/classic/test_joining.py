"""Joining a classic group: ids, the first rebalance, protocols, limits (clients 4.31, 4.32)."""

from dataclasses import replace

import pytest

from pqbroker.broker.services.coordination.classic.clock import retire_if_unused
from pqbroker.broker.services.coordination.classic.messages import JoinedMember
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol
from tests.broker.services.coordination.classic.rig import LIMITS, RANGE, REBALANCE_MS, SESSION_MS, Rig

pytestmark = pytest.mark.spec("4.31", "4.32")

ROUND_ROBIN = (MemberProtocol("roundrobin", b"rr"),)


def test_a_new_dynamic_member_is_told_an_id_and_joins_with_it() -> None:
    rig = Rig()
    told = rig.joined(rig.join(new="c-1"))
    assert (told.error, told.member_id, told.generation) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1", -1)
    assert rig.group.state is GroupState.EMPTY
    ticket = rig.join("c-1")
    rig.advance(3_000)
    assert rig.joined(ticket).error is ErrorCode.NONE
    assert rig.joined(ticket).member_id == "c-1"


def test_an_id_that_is_never_used_is_forgotten_after_a_session_timeout() -> None:
    rig = Rig()
    rig.join(new="c-1")
    rig.advance(SESSION_MS - 1)
    assert not retire_if_unused(rig.group)
    rig.advance(1)
    assert rig.joined(rig.join("c-1")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert retire_if_unused(rig.group)
    assert rig.group.state is GroupState.DEAD


def test_an_old_client_joins_without_an_id() -> None:
    rig = Rig()
    ticket = rig.enter("old")
    rig.advance(3_000)
    assert rig.joined(ticket).member_id == "old"


def test_an_id_that_nobody_gave_out_is_unknown() -> None:
    assert (rig := Rig()).joined(rig.join("made-up")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_rebalance_waits_for_its_delay_even_when_all_have_joined() -> None:
    rig = Rig()
    ticket = rig.enter("a")
    rig.advance(2_999)
    assert ticket not in rig.answers
    rig.advance(1)
    assert rig.joined(ticket).generation == 1


def test_the_first_rebalance_is_extended_while_members_arrive() -> None:
    rig = Rig()
    first = rig.enter("a")
    rig.advance(2_000)
    second = rig.enter("b")
    rig.advance(3_999)
    assert first not in rig.answers
    rig.advance(1)
    assert rig.joined(first).generation == rig.joined(second).generation == 1


def test_the_first_rebalance_lasts_no_longer_than_the_rebalance_timeout() -> None:
    rig = Rig()
    first = rig.enter("a", rebalance_timeout_ms=10_000)
    for number in range(9):
        rig.advance(1_000)
        rig.enter(f"b{number}", rebalance_timeout_ms=10_000)
    assert first not in rig.answers
    rig.advance(1_000)
    assert len(rig.joined(first).members) == 10


def test_without_a_delay_the_first_rebalance_is_over_at_once() -> None:
    rig = Rig(replace(LIMITS, initial_rebalance_delay_ms=0))
    ticket = rig.enter("a")
    rig.advance(0)
    assert rig.joined(ticket).generation == 1


def test_the_leader_gets_the_members_and_the_others_none() -> None:
    rig = Rig()
    leader, follower = rig.enter("a"), rig.enter("b", protocols=(MemberProtocol("range", b"b's"),))
    rig.advance(9_000)
    assert rig.joined(leader).members == (
        JoinedMember("a", None, b"range-bytes"),
        JoinedMember("b", None, b"b's"),
    )
    assert rig.joined(follower).members == ()
    assert rig.joined(leader).leader == rig.joined(follower).leader == "a"
    assert rig.joined(follower).protocol == "range"
    assert rig.joined(follower).protocol_type == "consumer"


def test_most_votes_among_the_shared_protocols_win() -> None:
    rig = Rig()
    both = RANGE + ROUND_ROBIN
    rig.enter("a", protocols=both)
    for name in ("b", "c"):
        rig.enter(name, protocols=(MemberProtocol("sticky", b""), *reversed(both)))
    rig.advance(12_000)
    assert rig.group.protocol == "roundrobin"


@pytest.mark.parametrize(
    "options",
    [{"protocols": ROUND_ROBIN}, {"protocols": ()}, {"protocol_type": "connect"}, {"protocol_type": ""}],
)
def test_who_shares_no_protocol_is_refused(options: dict[str, object]) -> None:
    rig = Rig()
    rig.form("a")
    assert rig.joined(rig.enter("b", **options)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.group.state is GroupState.STABLE


def test_an_empty_group_takes_another_protocol_type() -> None:
    rig = Rig()
    rig.form("a")
    rig.leave("a")
    rig.enter("b", protocol_type="connect", protocols=ROUND_ROBIN)
    rig.advance(3_000)
    assert (rig.group.protocol_type, rig.group.protocol, rig.group.generation) == ("connect", "roundrobin", 3)


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_outside_the_limits_is_refused(session_timeout_ms: int) -> None:
    rig = Rig()
    refused = rig.joined(rig.join(session_timeout_ms=session_timeout_ms))
    assert refused.error is ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_a_session_timeout_at_the_limits_is_taken(session_timeout_ms: int) -> None:
    rig = Rig()
    assert rig.joined(rig.join(session_timeout_ms=session_timeout_ms)).error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_full_group_refuses_one_more() -> None:
    rig = Rig(replace(LIMITS, members_max=2))
    rig.enter("a")
    rig.enter("b")
    assert rig.joined(rig.enter("c")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    rig.advance(9_000)
    rig.assign()
    assert rig.joined(rig.enter("c")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.joined(rig.join("b")).error is ErrorCode.NONE
    assert list(rig.group.members) == ["a", "b"]


def test_another_member_makes_all_join_again() -> None:
    rig = Rig()
    rig.form("a")
    newcomer = rig.enter("b")
    assert rig.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer not in rig.answers
    rejoined = rig.join("a")
    assert rig.joined(newcomer).generation == rig.joined(rejoined).generation == 2
    assert rig.joined(rejoined).leader == "a"


def test_who_has_not_joined_when_the_rebalance_timeout_is_over_is_dropped() -> None:
    rig = Rig()
    rig.form("a", "b")
    newcomer = rig.enter("c", rebalance_timeout_ms=1_000)
    rig.join("b")
    for _ in range(12):
        rig.advance(REBALANCE_MS // 12 - 1)
        rig.heartbeat("a")
    assert newcomer not in rig.answers
    rig.advance(12)
    assert rig.joined(newcomer).generation == 2
    assert list(rig.group.members) == ["b", "c"]
    assert rig.group.leader == "b"
    assert rig.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_one_with_an_id_that_has_not_joined_yet_is_waited_for() -> None:
    rig = Rig()
    rig.form("a")
    rig.join(new="b")
    newcomer = rig.enter("c")
    again = rig.join("a")
    assert again not in rig.answers
    rig.join("b")
    assert rig.joined(again).generation == rig.joined(newcomer).generation == 2
    assert len(rig.group.members) == 3


def test_one_with_an_id_is_waited_for_no_longer_than_its_session() -> None:
    rig = Rig()
    rig.form("a")
    rig.join(new="b")
    rig.enter("c")
    again = rig.join("a")
    rig.advance(SESSION_MS)
    assert rig.joined(again).generation == 2
    assert list(rig.group.members) == ["a", "c"]


def test_a_lost_answer_is_given_again_in_the_same_generation() -> None:
    rig = Rig()
    rig.enter("a")
    rig.enter("b")
    rig.advance(9_000)
    assert rig.group.state is GroupState.COMPLETING_REBALANCE
    for name, members in (("a", 2), ("b", 0)):
        again = rig.joined(rig.join(name))
        assert (again.error, again.generation, len(again.members)) == (ErrorCode.NONE, 1, members)
    assert rig.group.state is GroupState.COMPLETING_REBALANCE


def test_a_follower_that_joins_a_stable_group_again_changes_nothing() -> None:
    rig = Rig()
    rig.form("a", "b")
    again = rig.joined(rig.join("b"))
    assert (again.error, again.generation, again.leader) == (ErrorCode.NONE, 1, "a")
    assert rig.group.state is GroupState.STABLE


def test_a_leader_that_joins_a_stable_group_again_makes_a_rebalance() -> None:
    rig = Rig()
    rig.form("a", "b")
    rig.join("a")
    assert rig.group.state is GroupState.PREPARING_REBALANCE


def test_a_follower_with_another_subscription_makes_a_rebalance() -> None:
    rig = Rig()
    rig.form("a", "b")
    rig.join("b", protocols=(MemberProtocol("range", b"more topics"),))
    assert rig.group.state is GroupState.PREPARING_REBALANCE
    rig.join("a")
    assert rig.group.generation == 2
    assert rig.group.members["b"].metadata("range") == b"more topics"


def test_a_join_that_still_waits_is_answered_when_the_member_joins_anew() -> None:
    rig = Rig()
    rig.form("a")
    superseded = rig.enter("b")
    latest = rig.join("b")
    assert rig.joined(superseded).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert latest not in rig.answers
    rig.join("a")
    assert rig.joined(latest).generation == 2


def test_a_new_member_may_wait_five_minutes_and_must_then_ask_again() -> None:
    rig = Rig()
    rig.form("a", rebalance_timeout_ms=1_000_000)
    newcomer = rig.enter("b")
    for _ in range(60):
        rig.advance(5_000)
        rig.heartbeat("a")
    assert rig.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(rig.group.members) == ["a"]


def test_a_group_whose_last_member_goes_is_empty_in_a_new_generation_and_stored() -> None:
    rig = Rig()
    rig.form("a")
    rig.leave("a")
    assert (rig.group.state, rig.group.generation) == (GroupState.EMPTY, 2)
    assert rig.images[-1].members == ()
    assert not retire_if_unused(rig.group)
    assert rig.group.wake_at_ms is None
