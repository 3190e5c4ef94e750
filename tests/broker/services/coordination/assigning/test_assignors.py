"""Every partition has one owner; uniform is balanced and sticky; both work in short steps."""

from random import Random
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.broker.services.coordination.assigning.assignor import Assignor, MemberSubscription, TopicPartitions
from pqbroker.broker.services.coordination.assigning.range_assignor import RangeAssignor
from pqbroker.broker.services.coordination.assigning.uniform import UniformAssignor
from tests.broker.services.coordination.assigning.drawn_groups import Group, Story, Target, moved, placed, topic_id
from tests.support.cpu_time import TRIES, no_collector, slowness
from tests.support.depth import examples

ASSIGNORS = (UniformAssignor(), RangeAssignor())
STEP_MS = 5
COUNTS = st.lists(st.integers(1, 30), min_size=1, max_size=4)


def loads(target: Target) -> list[int]:
    return [sum(map(len, assignment.values())) for assignment in target.values()]


def group_of(members: int, counts: list[int]) -> Group:
    topics = {topic_id(number): TopicPartitions(count) for number, count in enumerate(counts)}
    wanted = frozenset(topics)
    return Group({f"m{number:03}": MemberSubscription(wanted, {}) for number in range(members)}, topics)


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
@settings(max_examples=examples(200))
@given(seed=st.integers(0, 1 << 40))
def test_every_partition_has_one_owner_who_subscribes_to_it(assignor: Assignor, seed: int) -> None:
    for group in Story(seed).steps(assignor, 4):
        target = group.assign(assignor)
        assert list(target) == list(group.members)
        owners = placed(target)
        assert owners.keys() == group.partitions()
        assert all(topic in group.members[name].topic_ids for (topic, _), name in owners.items())
        assert all(list(numbers) == sorted(numbers) for given in target.values() for numbers in given.values())
        assert all(numbers for given in target.values() for numbers in given.values())


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
@settings(max_examples=examples(200))
@given(seed=st.integers(0, 1 << 40))
def test_a_group_that_does_not_change_keeps_the_very_same(assignor: Assignor, seed: int) -> None:
    for group in Story(seed).steps(assignor, 3):
        target = group.assign(assignor)
        again = group.after(target).assign(assignor)
        assert all(again[name] is target[name] for name in target)


@settings(max_examples=examples(200))
@given(members=st.integers(1, 30), counts=st.lists(st.integers(1, 40), min_size=1, max_size=6), leavers=st.data())
def test_members_that_want_the_same_differ_by_one_partition_at_most(
    members: int, counts: list[int], leavers: st.DataObject
) -> None:
    group = group_of(members, counts)
    target = group.assign(UniformAssignor())
    assert max(loads(target)) - min(loads(target)) <= 1
    left = leavers.draw(st.sets(st.sampled_from(list(group.members)), max_size=members - 1))
    rest = {name: member for name, member in group.after(target).members.items() if name not in left}
    after = Group(rest, group.topics)
    target = after.assign(UniformAssignor())
    assert max(loads(target)) - min(loads(target)) <= 1
    assert moved(after, target) == 0, "those that stay keep what they had"


@settings(max_examples=examples(100))
@given(members=st.integers(1, 20), joiners=st.integers(1, 10), counts=COUNTS)
def test_members_that_join_cost_only_what_they_are_given(members: int, joiners: int, counts: list[int]) -> None:
    group = group_of(members, counts)
    target = group.assign(UniformAssignor())
    new = {f"n{number}": MemberSubscription(frozenset(group.topics), {}) for number in range(joiners)}
    after = Group({**group.after(target).members, **new}, group.topics)
    target = after.assign(UniformAssignor())
    assert moved(after, target) == sum(loads(target)[members:])
    assert max(loads(target)) - min(loads(target)) <= 1


def test_a_chain_of_subscriptions_is_balanced_too() -> None:
    """Kafka ends with 9, 10 and 11 here."""
    one, two = topic_id(1), topic_id(2)
    members = {
        "a": MemberSubscription(frozenset({one}), {one: tuple(range(9))}),
        "b": MemberSubscription(frozenset({one, two}), {one: (9, 10, 11), two: tuple(range(7))}),
        "c": MemberSubscription(frozenset({two}), {two: tuple(range(7, 18))}),
    }
    target = Group(members, {one: TopicPartitions(12), two: TopicPartitions(18)}).assign(UniformAssignor())
    assert loads(target) == [10, 10, 10]


def test_a_topic_is_spread_over_new_members() -> None:
    target = group_of(3, [6, 6]).assign(UniformAssignor())
    assert all(len(numbers) == 2 for assignment in target.values() for numbers in assignment.values())


def test_what_no_topic_has_any_more_is_forgotten() -> None:
    """A partition above the count, a topic that is gone, a partition that two members had."""
    one, gone = topic_id(1), topic_id(2)
    members = {
        "a": MemberSubscription(frozenset({one, gone}), {one: (0, 1, 7), gone: (0,)}),
        "b": MemberSubscription(frozenset({one}), {one: (1,)}),
    }
    target = Group(members, {one: TopicPartitions(4)}).assign(UniformAssignor())
    assert target == {"a": {one: (0, 1)}, "b": {one: (2, 3)}}


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
def test_nobody_and_nothing_are_no_trouble(assignor: Assignor) -> None:
    one = topic_id(1)
    assert Group({}, {one: TopicPartitions(1)}).assign(assignor) == {}
    assert Group({"a": MemberSubscription(frozenset(), {})}, {one: TopicPartitions(1)}).assign(assignor) == {"a": {}}
    assert Group({"a": MemberSubscription(frozenset({one}), {})}, {}).assign(assignor) == {"a": {}}


def test_static_members_have_their_ranges_under_another_id() -> None:
    one, two = topic_id(1), topic_id(2)
    topics = {one: TopicPartitions(5), two: TopicPartitions(5)}
    wanted = frozenset(topics)

    def ranges(first: str, second: str) -> list[object]:
        members = {
            first: MemberSubscription(wanted, {}, "i0"),
            second: MemberSubscription(wanted, {}, "i1"),
            "0": MemberSubscription(wanted, {}),
        }
        target = Group(members, topics).assign(RangeAssignor())
        return [target[first], target[second], target["0"]]

    expected = [{one: numbers, two: numbers} for numbers in ((0, 1), (2, 3), (4,))]
    assert ranges("a", "b") == ranges("b", "a") == expected


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
@pytest.mark.parametrize("kind", ["alike", "mixed"])
def test_five_hundred_members_over_five_thousand_partitions_take_short_steps(assignor: Assignor, kind: str) -> None:
    chance = Random(5)
    group = group_of(500, [50] * 100)
    if kind == "mixed":
        names = list(group.topics)
        members = {name: MemberSubscription(frozenset(chance.sample(names, 30)), {}) for name in group.members}
        group = Group(members, group.topics)
    joined = {**group.after(group.assign(assignor)).members, "z": MemberSubscription(frozenset(group.topics), {})}
    for _ in range(TRIES):
        longest_ms = longest_step_ms(Group(joined, group.topics), assignor) / slowness()
        if longest_ms < STEP_MS:
            return
    pytest.fail(f"a step of {longest_ms:.1f} ms in each of {TRIES} tries")


def longest_step_ms(group: Group, assignor: Assignor) -> float:
    work, longest = assignor.assign(group.members, group.topics), 0.0
    with no_collector():
        while True:
            begin = thread_time()
            try:
                next(work)
            except StopIteration:
                return longest * 1000
            longest = max(longest, thread_time() - begin)
