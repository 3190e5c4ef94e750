"""Ids and hash of the topics that members read follow what the node has."""

from pqbroker.broker.services.coordination.modern.topics_read import _topic_hash, hash_ahead, topic_ids, topics_hash
from tests.broker.services.coordination.modern.rig import Rig


def test_ids_follow_topics_that_come_and_go_and_come_again() -> None:
    rig = Rig()
    rig.topics.put("t", 1)
    rig.join("m", "t", "u")
    said = rig.group.members["m"].subscription
    (first,) = topic_ids(rig.group, said, rig.topics)
    assert topic_ids(rig.group, said, rig.topics) is topic_ids(rig.group, said, rig.topics), "kept"
    rig.topics.put("u", 1)
    assert len(topic_ids(rig.group, said, rig.topics)) == 2
    rig.topics.remove("t")
    assert first not in topic_ids(rig.group, said, rig.topics)


def test_members_that_read_others_have_other_ids() -> None:
    rig = Rig()
    for name in ("t", "u"):
        rig.topics.put(name, 1)
        rig.join(name, name)
    ids = [topic_ids(rig.group, rig.group.members[name].subscription, rig.topics) for name in ("t", "u", "t")]
    assert ids[0] == ids[2] != ids[1]


def test_the_hash_changes_with_each_topic_that_is_read_and_with_no_other() -> None:
    rig = Rig()
    rig.join("m", "t", "u")
    hashes = [topics_hash(rig.group, rig.topics)]
    for name, count in (("t", 1), ("t", 2), ("u", 2)):
        rig.topics.put(name, count)
        hashes.append(topics_hash(rig.group, rig.topics))
    assert len(set(hashes)) == 4
    assert hashes[0] == 0
    rig.topics.put("other", 1)
    assert topics_hash(rig.group, rig.topics) == hashes[-1]
    rig.topics.remove("u")
    assert topics_hash(rig.group, rig.topics) == hashes[2]


def test_a_step_ahead_is_one_topic_whose_hash_is_kept() -> None:
    rig = Rig()
    names = [f"ahead-{number}" for number in range(3)]
    rig.join("m", *names, "missing")
    for name in names:
        rig.topics.put(name, 1)
    hashes = _topic_hash.cache_info
    before = hashes().misses
    steps = hash_ahead([*names, "missing"], rig.topics)
    assert [hashes().misses - before for _ in steps] == [1, 2, 3, 3]
    topics_hash(rig.group, rig.topics)
    assert hashes().misses - before == 3
