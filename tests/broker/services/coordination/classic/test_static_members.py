"""Static members (KIP-345): a place that outlives its process, and who may hold it."""

import pytest

from pqbroker.broker.services.coordination.classic.messages import Leaver
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.coordinators import new_member_id
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol
from tests.broker.services.coordination.classic.rig import RANGE, REBALANCE_MS, SESSION_MS, Rig

pytestmark = pytest.mark.spec("4.31")

LONG_SESSION_MS = 10 * REBALANCE_MS


def stable() -> Rig:
    """Leader a1 of instance a, follower b1 of instance b."""
    rig = Rig()
    for name in ("a", "b"):
        rig.join(instance=name, new=f"{name}1")
    rig.end_rebalance()
    rig.assign()
    assert rig.group.state is GroupState.STABLE
    return rig


def test_a_static_member_is_not_told_its_id_first() -> None:
    rig = Rig()
    ticket = rig.join(instance="a", new="a1")
    rig.advance(3_000)
    assert (rig.joined(ticket).error, rig.joined(ticket).member_id) == (ErrorCode.NONE, "a1")
    assert rig.joined(ticket).members[0].instance_id == "a"


def test_a_follower_that_comes_back_keeps_its_assignment_without_a_rebalance() -> None:
    rig = stable()
    back = rig.joined(rig.join(instance="b", new="b2"))
    assert (back.member_id, back.generation, back.leader, back.skips_assignment) == ("b2", 1, "a1", False)
    assert rig.group.state is GroupState.STABLE
    assert rig.synced(rig.sync("b2", instance="b")).assignment == b"b1"
    assert [member.member_id for member in rig.images[-1].members] == ["a1", "b2"]


def test_a_leader_that_comes_back_is_told_to_assign_nothing() -> None:
    rig = stable()
    back = rig.joined(rig.join(instance="a", new="a2"))
    assert (back.leader, back.skips_assignment, len(back.members)) == ("a2", True, 2)
    assert rig.synced(rig.sync("a2", instance="a")).assignment == b"a1"


def test_an_older_leader_that_comes_back_takes_itself_for_a_follower() -> None:
    rig = stable()
    back = rig.joined(rig.join(instance="a", new="a2", can_skip_assignment=False))
    assert (back.leader, back.skips_assignment, back.members) == ("a1", False, ())
    assert rig.group.leader == "a2"


def test_the_earlier_holder_of_the_place_is_fenced() -> None:
    rig = stable()
    rig.join(instance="b", new="b2")
    assert rig.heartbeat("b1", instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.commit("b1", generation=1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.synced(rig.sync("b1", instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.joined(rig.join("b1", instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.leave(Leaver("b1", "b")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert rig.heartbeat("b1") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat("b2", instance="b") is ErrorCode.NONE


def test_the_earlier_holder_that_waits_is_told_that_it_is_fenced() -> None:
    rig = Rig()
    first = rig.join(instance="a", new="a1")
    second = rig.join(instance="a", new="a2")
    assert rig.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    rig.advance(6_000)
    assert rig.joined(second).member_id == "a2"


def test_the_earlier_holder_that_waits_for_its_assignment_is_fenced_and_all_join_again() -> None:
    rig = Rig()
    for name in ("a", "b"):
        rig.join(instance=name, new=f"{name}1")
    rig.end_rebalance()
    waiting = rig.sync("b1", instance="b")
    rig.join(instance="b", new="b2")
    assert rig.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.heartbeat("a1") is ErrorCode.REBALANCE_IN_PROGRESS
    rig.join("a1", instance="a")
    assert (rig.group.generation, set(rig.group.members)) == (2, {"a1", "b2"})


def test_one_that_comes_back_with_other_protocols_makes_a_rebalance_if_the_choice_changes() -> None:
    rig = Rig()
    sticky = MemberProtocol("sticky", b"")
    for name in ("a", "b"):
        rig.join(instance=name, new=f"{name}1", protocols=(sticky, *RANGE))
    rig.end_rebalance()
    rig.assign()
    assert rig.group.protocol == "sticky"
    ticket = rig.join(instance="b", new="b2", protocols=RANGE)
    assert ticket not in rig.answers
    rig.join("a1", instance="a", protocols=(sticky, *RANGE))
    assert (rig.joined(ticket).protocol, rig.joined(ticket).generation) == ("range", 2)


def test_one_that_comes_back_is_answered_when_that_is_stored() -> None:
    rig = stable()
    rig.stores_at_once = False
    ticket = rig.join(instance="b", new="b2")
    assert ticket not in rig.answers
    rig.finish_stores()
    assert rig.joined(ticket).error is ErrorCode.NONE


def test_one_that_comes_back_and_is_not_stored_is_told_to_ask_again() -> None:
    rig = stable()
    rig.stores_at_once = False
    ticket = rig.join(instance="b", new="b2")
    rig.finish_stores(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert rig.joined(ticket).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = rig.join("b2", instance="b")
    assert rig.joined(again).generation == 1


def test_one_that_comes_back_while_a_rebalance_begins_joins_that_one() -> None:
    rig = stable()
    rig.stores_at_once = False
    ticket = rig.join(instance="b", new="b2")
    rig.join("a1", instance="a")
    assert rig.joined(ticket).generation == 2
    rig.finish_stores()
    assert rig.group.generation == 2


def test_a_static_member_that_is_away_keeps_its_place_for_its_session() -> None:
    rig = Rig()
    rig.join(instance="a", new="a1", session_timeout_ms=LONG_SESSION_MS)
    rig.enter("b", session_timeout_ms=LONG_SESSION_MS)
    rig.end_rebalance()
    rig.assign()
    newcomer = rig.enter("c", session_timeout_ms=LONG_SESSION_MS)
    rig.join("b", session_timeout_ms=LONG_SESSION_MS)
    rig.advance(REBALANCE_MS)
    assert rig.joined(newcomer).generation == 2
    assert rig.group.leader == "b"
    assert set(rig.group.members) == {"a1", "b", "c"}
    rig.sync_all({"a1": b"still a's"})
    rig.advance(LONG_SESSION_MS - 2 * REBALANCE_MS)
    assert "a1" in rig.group.members
    back = rig.joined(rig.join(instance="a", new="a2"))
    assert back.generation == 2
    assert rig.synced(rig.sync("a2", instance="a")).assignment == b"still a's"


def test_when_only_static_members_are_left_and_away_the_group_waits_for_them_or_their_sessions() -> None:
    rig = stable()
    for _ in range(3):
        rig.advance(SESSION_MS // 2)
        rig.heartbeat("a1", instance="a")
    assert set(rig.group.members) == {"a1"}
    assert rig.group.state is GroupState.PREPARING_REBALANCE
    for _ in range(2 * REBALANCE_MS // SESSION_MS + 2):
        rig.advance(SESSION_MS - 1)
        assert rig.heartbeat("a1", instance="a") is ErrorCode.REBALANCE_IN_PROGRESS
    rig.join("a1", instance="a")
    assert rig.group.generation == 2


@pytest.mark.parametrize("member_id", ["", "b1"])
def test_a_static_member_is_removed_by_its_instance(member_id: str) -> None:
    rig = stable()
    assert rig.leave(Leaver(member_id, "b")) == [ErrorCode.NONE]
    assert set(rig.group.members) == {"a1"}
    assert rig.group.instances == {"a": "a1"}


def test_an_instance_that_is_not_there_cannot_be_claimed_by_id() -> None:
    rig = stable()
    assert rig.joined(rig.join("c1", instance="c")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat("a1", instance="c") is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_given_out_to_a_dynamic_member_is_no_way_into_a_static_place() -> None:
    rig = stable()
    told = rig.joined(rig.join(new="c1"))
    assert told.error is ErrorCode.MEMBER_ID_REQUIRED
    assert rig.joined(rig.join("c1", instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.joined(rig.join("c1", instance="c")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert (rig.group.state, list(rig.group.members)) == (GroupState.STABLE, ["a1", "b1"])


def test_the_empty_text_is_an_instance_too() -> None:
    rig = Rig()
    rig.join(instance="", new="1")
    rig.end_rebalance()
    rig.assign()
    assert rig.heartbeat("1", instance="") is ErrorCode.NONE
    assert rig.heartbeat("2", instance="") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.leave(Leaver("", "")) == [ErrorCode.NONE]
    assert rig.heartbeat("1", instance="") is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_of_no_name_is_no_dynamic_member() -> None:
    rig = Rig()
    rig.form("1")
    assert rig.heartbeat("1", instance="") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_id_of_a_static_member_begins_with_its_instance() -> None:
    starts = [new_member_id("client", instance)[:-36] for instance in (None, "i", "")]
    assert starts == ["client-", "i-", "-"]
