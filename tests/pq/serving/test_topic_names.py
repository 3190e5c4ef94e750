"""Names of topics, and those that Kafka's metrics do not tell apart, against a model that looks at all of them."""

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.serving.topic import Topic, TopicNames

NAMES = st.sampled_from(["a.b.c", "a_b.c", "a.b_c", "a_b_c", "a-b-c", "a", ".", "_"])


def topic(name: str, *, is_static: bool) -> Topic:
    return cast(Topic, SimpleNamespace(record=SimpleNamespace(name=name, topic_id=name.encode(), is_static=is_static)))


@given(st.lists(st.tuples(NAMES, st.booleans(), st.booleans()), max_size=20), st.lists(NAMES, max_size=8))
def test_a_name_collides_while_another_one_differs_in_dots_and_underscores_alone(
    changes: list[tuple[str, bool, bool]], asked: list[str]
) -> None:
    names, known = TopicNames(), set[str]()
    for name, is_removal, is_static in changes:
        if is_removal:
            names.remove(topic(name, is_static=is_static).record)
            known.discard(name)
        elif name not in known:
            names.put(topic(name, is_static=is_static))
            known.add(name)
    for name in asked + [name for name, _, _ in changes]:
        same = {other for other in known if other != name and other.replace(".", "_") == name.replace(".", "_")}
        found = names.colliding(name)
        assert found in same if same else found is None
