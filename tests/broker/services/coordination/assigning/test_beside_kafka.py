"""Kafka's own assignors get the same groups: range gives the same, uniform is as balanced and moves as little."""

from collections.abc import Iterator

import pytest

from pqbroker.broker.services.coordination.assigning.range_assignor import RangeAssignor
from pqbroker.broker.services.coordination.assigning.uniform import UniformAssignor
from tests.broker.services.coordination.assigning.drawn_groups import Story, imbalance, moved, placed
from tests.broker.services.coordination.assigning.kafka_assignors import KafkaAssignors
from tests.support.depth import examples

STORIES = 200
STEPS = 8


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaAssignors]:
    with KafkaAssignors() as assignors:
        yield assignors


def test_uniform_is_balanced_as_kafkas_and_moves_no_more(kafka: KafkaAssignors) -> None:
    """Balance comes first: a better balanced target may move more."""
    for seed in range(examples(STORIES)):
        for group in Story(seed).steps(UniformAssignor(), STEPS):
            ours, theirs = group.assign(UniformAssignor()), kafka.assign("uniform", group)
            assert placed(ours).keys() == placed(theirs).keys() == group.partitions(), seed
            assert (imbalance(ours), moved(group, ours)) <= (imbalance(theirs), moved(group, theirs)), seed


def test_range_gives_what_kafkas_gives(kafka: KafkaAssignors) -> None:
    for seed in range(examples(STORIES)):
        for group in Story(seed).steps(RangeAssignor(), STEPS):
            ours, theirs = group.assign(RangeAssignor()), kafka.assign("range", group)
            assert ours == theirs, seed
