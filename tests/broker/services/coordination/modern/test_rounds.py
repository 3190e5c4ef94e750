"""How many heartbeats of each member a large group needs until it is stable again."""

from pqbroker.broker.services.coordination.classic.states import GroupState
from tests.broker.services.coordination.modern.rig import Rig

MEMBERS = 100
PARTITIONS = 650


def test_a_group_of_a_hundred_is_stable_two_heartbeats_after_one_has_left() -> None:
    rig = Rig(slice_steps=50)
    rig.topics.put("t", PARTITIONS)
    epochs = {}
    for number in range(MEMBERS):
        answer = rig.join(f"m{number}")
        epochs[answer.member_id] = answer.epoch
    rounds = [_round(rig, epochs) for _ in range(6)]
    assert rounds[-1] is GroupState.STABLE
    rig.beat("m50", -1)
    del epochs["m50"]
    assert GroupState.STABLE in [_round(rig, epochs), _round(rig, epochs)]
    given = [len(indexes) for member in rig.group.members.values() for indexes in member.current.assigned.values()]
    assert sum(given) == PARTITIONS


def _round(rig: Rig, epochs: dict[str, int]) -> GroupState:
    """Every member beats once, and says what it has been given by then."""
    for member_id, epoch in epochs.items():
        assigned = rig.group.members[member_id].current.assigned
        owned = {topic_id: list(indexes) for topic_id, indexes in assigned.items()}
        epochs[member_id] = rig.beat(member_id, epoch, owned=owned).epoch
    return rig.group.state
