"""Heartbeats of KIP-848 tell a member its epoch and partitions, and bad ones are refused. Codes are Kafka 4.3's."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from pqbroker.broker.services.coordination.assigning.assignor import Assignment
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.conf.group_times import GroupTimes
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.modern_group_rows import LEFT_STATIC, MemberState
from tests.broker.services.coordination.modern.rig import (
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    Chosen,
    Rig,
    partitions,
    topic_id,
)

T = topic_id("t")
ALL = {T: [0, 1, 2, 3]}


@pytest.fixture
def rig() -> Rig:
    """A group whose members read a topic of four partitions."""
    rig = Rig()
    rig.topics.put("t", 4)
    return rig


def test_the_first_member_gets_everything_with_its_first_heartbeat(rig: Rig) -> None:
    answer = rig.join("a")
    assert (answer.member_id, answer.epoch, answer.heartbeat_interval_ms) == ("a", 2, 1_000)
    assert partitions(answer.assigned) == {(T, 0), (T, 1), (T, 2), (T, 3)}
    assert rig.state() is GroupState.STABLE


def test_a_partition_goes_to_its_new_owner_only_when_the_old_one_has_let_go(rig: Rig) -> None:
    rig.join("a")
    assert rig.join("b").assigned == {}
    assert rig.group.members["b"].current.state is MemberState.UNRELEASED_PARTITIONS
    kept = rig.beat("a", 2, owned=ALL)
    assert kept.epoch == 2  # until it has let go
    assert len(partitions(kept.assigned)) == 2
    assert rig.group.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert rig.beat("b", 3).assigned is None
    assert rig.state() is GroupState.RECONCILING
    assert rig.beat("a", 2, owned={T: list(kept.assigned[T])}).epoch == 3  # type: ignore[index]
    given = rig.beat("b", 3)
    assert partitions(given.assigned) | partitions(kept.assigned) == {(T, 0), (T, 1), (T, 2), (T, 3)}
    assert rig.state() is GroupState.STABLE


def test_a_member_that_does_not_say_what_it_owns_has_let_go_of_nothing(rig: Rig) -> None:
    rig.join("a")
    rig.join("b")
    rig.beat("a", 2)
    rig.beat("a", 2)
    assert rig.group.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS


def test_an_answer_has_the_assignment_when_it_changes_or_the_request_is_full(rig: Rig) -> None:
    rig.join("a")
    assert rig.beat("a", 2).assigned is None
    assert rig.beat("a", 2, owned=ALL).assigned is None
    full = rig.beat("a", 2, owned=ALL, topics=frozenset({"t"}), rebalance_timeout_ms=REBALANCE_MS)
    assert len(partitions(full.assigned)) == 4
    assert len(partitions(rig.join("a").assigned)) == 4


def test_a_member_whose_answer_was_lost_comes_with_the_epoch_before(rig: Rig) -> None:
    rig.join("a")
    rig.topics.put("t", 5)
    assert rig.beat("a", 2, owned=ALL).epoch == 3
    assert rig.beat("a", 2, owned=ALL).epoch == 3
    assert rig.refusal("a", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert rig.refusal("a", 2, owned={T: [7]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert rig.refusal("a", 2, owned={topic_id("u"): [0]}) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [3, 4, 1 << 30])
def test_a_member_with_a_later_epoch_than_is_known_is_fenced(rig: Rig, epoch: int) -> None:
    rig.join("a")
    assert rig.refusal("a", epoch, owned=ALL) is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_is_no_member_is_told_so(rig: Rig) -> None:
    rig.join("a")
    assert rig.refusal("b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.refusal("b", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.refusal("b", 2, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.refusal("b", LEFT_STATIC, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_says_nothing_is_removed_when_its_session_ends(rig: Rig) -> None:
    rig.join("a")
    rig.advance(SESSION_MS - 1)
    rig.join("b")
    rig.advance(1)
    assert list(rig.group.members) == ["b"]
    assert rig.state() is GroupState.ASSIGNING
    assert len(partitions(rig.beat("b", 3).assigned)) == 4


def test_a_member_that_does_not_let_go_in_time_is_removed(rig: Rig) -> None:
    rig.join("a")
    rig.join("b")
    for _ in range(REBALANCE_MS // 5_000):
        rig.beat("a", 2, owned=ALL)
        rig.beat("b", 3)
        rig.advance(5_000)
    assert list(rig.group.members) == ["b"]
    assert len(partitions(rig.beat("b", 3).assigned)) == 4


def test_a_member_leaves_and_the_others_share_what_it_had(rig: Rig) -> None:
    rig.join("a")
    rig.join("b")
    left = rig.beat("a", -1)
    assert (left.member_id, left.epoch, left.assigned) == ("a", -1, None)
    assert len(partitions(rig.beat("b", 3).assigned)) == 4
    rig.beat("b", -1)
    assert rig.state() is GroupState.EMPTY
    assert rig.group.epoch == 5


def test_a_static_member_that_comes_back_has_what_it_had(rig: Rig) -> None:
    rig.join("a", instance_id="i")
    epoch = rig.group.epoch
    assert rig.beat("a", LEFT_STATIC, instance_id="i").epoch == LEFT_STATIC
    assert rig.join("b").assigned == {}
    back = rig.join("a2", instance_id="i")
    assert partitions(back.assigned) == {(T, 0), (T, 1), (T, 2), (T, 3)} - partitions(rig.group.members["b"].target)
    assert rig.group.epoch == epoch + 1  # for b
    assert rig.refusal("a", epoch, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.refusal("a", -1, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_comes_back_under_its_own_id_has_what_it_had(rig: Rig) -> None:
    rig.join("a", instance_id="i")
    rig.beat("a", LEFT_STATIC, instance_id="i")
    back = rig.join("a", instance_id="i")
    assert (back.epoch, len(partitions(back.assigned))) == (2, 4)


def test_an_instance_belongs_to_one_member_until_it_leaves(rig: Rig) -> None:
    rig.join("a", instance_id="i")
    with pytest.raises(KafkaError) as refused:
        rig.join("b", instance_id="i")
    assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
    with pytest.raises(KafkaError) as refused:
        rig.join("a", instance_id="i")
    assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_member_may_take_an_instance_and_another_one_later(rig: Rig) -> None:
    rig.join("a")
    rig.join("a", instance_id="i")
    assert rig.group.instances == {"i": "a"}
    rig.join("a", instance_id="j")
    assert rig.group.instances == {"j": "a"}


def test_a_full_group_takes_nobody_more() -> None:
    rig = Rig(replace(LIMITS, modern_members_max=1))
    rig.topics.put("t", 1)
    rig.join("a")
    with pytest.raises(KafkaError) as refused:
        rig.join("b")
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.join("a").epoch == 2


def test_a_subscription_without_room_is_refused_and_changes_nothing() -> None:
    rig = Rig(replace(LIMITS, member_bytes_max=1024))
    rig.join("a")
    code = rig.refusal("a", 2, topics=frozenset({"x" * 2000}))
    assert code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.group.members["a"].subscription.topics == {"t"}


def test_the_subscriptions_of_a_group_have_a_limit_together() -> None:
    rig = Rig(replace(LIMITS, metadata_bytes_max=1500))
    rig.join("a")
    rig.join("b")
    with pytest.raises(KafkaError) as refused:
        rig.join("c")
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_partitions_of_a_topic_that_a_member_no_longer_reads_are_revoked_at_once(rig: Rig) -> None:
    rig.topics.put("u", 1)
    rig.times = GroupTimes(SESSION_MS, 1_000, 60_000)
    rig.join("a", "t", "u")
    answer = rig.beat("a", 2, topics=frozenset({"u"}), owned={**ALL, topic_id("u"): [0]})
    assert partitions(answer.assigned) == {(topic_id("u"), 0)}
    assert rig.group.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert rig.state() is GroupState.ASSIGNING  # the interval is not over


def test_targets_keep_an_interval(rig: Rig) -> None:
    rig.times = GroupTimes(SESSION_MS, 1_000, 1_000)
    rig.join("a")
    rig.join("b")
    rig.advance(999)
    rig.beat("b", 2)
    assert rig.state() is GroupState.ASSIGNING
    rig.advance(1)
    rig.beat("b", 2)
    assert rig.state() is GroupState.RECONCILING


def test_a_clock_that_is_set_back_keeps_no_group_from_its_target(rig: Rig) -> None:
    rig.times = GroupTimes(SESSION_MS, 1_000, 1_000)
    rig.join("a")
    rig.group.assigned_ms += 3_600_000
    rig.join("b")
    assert rig.group.assignment_epoch == 3


def test_a_topic_that_comes_or_grows_or_goes_begins_an_epoch(rig: Rig) -> None:
    rig.join("a", "t", "u")
    changes = (partial(rig.topics.put, "u", 1), partial(rig.topics.put, "t", 5), partial(rig.topics.remove, "t"))
    for count, change in enumerate(changes, start=3):
        change()
        rig.beat("a", rig.group.members["a"].current.epoch, owned={})
        assert rig.group.epoch == count
    assert partitions(rig.group.members["a"].current.assigned) == {(topic_id("u"), 0)}
    rig.topics.put("unread", 1)
    rig.beat("a", 5)
    assert rig.group.epoch == 5


def test_a_target_takes_slices_and_heartbeats_meanwhile_get_the_present_one(rig: Rig) -> None:
    everything = Chosen(lambda members, _: {name: {T: (0, 1, 2, 3)} for name in members}, steps=9)
    rig.assignors = {"uniform": everything}
    rig.slice_steps = 4
    answers = [rig.join("a"), rig.beat("a", 1, owned={}), rig.beat("a", 1, owned={})]
    assert [len(partitions(answer.assigned)) for answer in answers] == [0, 0, 4]
    assert [answer.epoch for answer in answers] == [1, 1, 2]


def test_a_member_that_joins_while_a_target_is_worked_out_gets_one_of_the_next(rig: Rig) -> None:
    rig.slice_steps = 1
    rig.join("a")
    assert rig.group.work is not None
    rig.join("b")
    for _ in range(40):
        rig.beat("a", rig.group.members["a"].current.epoch, owned={})
        rig.beat("b", rig.group.members["b"].current.epoch, owned={})
    assert rig.state() is GroupState.STABLE
    assert [len(partitions(member.current.assigned)) for member in rig.group.members.values()] == [2, 2]


def test_a_static_member_that_comes_back_while_a_target_is_worked_out_gets_its_share(rig: Rig) -> None:
    rig.join("a", instance_id="i")
    rig.beat("a", LEFT_STATIC, instance_id="i")
    rig.slice_steps = 1
    rig.topics.put("t", 8)
    rig.join("a2", instance_id="i")
    assert rig.group.work is not None
    rig.beat("a2", LEFT_STATIC, instance_id="i")
    rig.slice_steps = 1_000
    assert len(partitions(rig.join("a3", instance_id="i").assigned)) == 8


def test_the_assignor_that_most_members_ask_for_is_taken(rig: Rig) -> None:
    taken: list[str] = []

    def noting(name: str) -> Chosen:
        def choose(members: Mapping[str, object], _: object) -> dict[str, Assignment]:
            taken.append(name)
            return {name: {} for name in members}

        return Chosen(choose, name=name)

    rig.assignors = {name: noting(name) for name in ("uniform", "range")}
    rig.join("a")
    rig.join("b", assignor="range")
    rig.join("c", assignor="uniform")
    rig.join("d", assignor="uniform")
    assert taken == ["uniform", "range", "uniform", "uniform"]


def test_an_assignor_that_fails_leaves_the_group_as_it_is(rig: Rig) -> None:
    def fail(*_: object) -> dict[str, Assignment]:
        raise RuntimeError("a defect")

    rig.join("a")
    working, rig.assignors = rig.assignors, {"uniform": Chosen(fail)}
    with pytest.raises(RuntimeError):
        rig.join("b")
    assert rig.group.work is None
    rig.assignors = working
    rig.beat("a", 2, owned=ALL)
    assert rig.group.assignment_epoch == 3
