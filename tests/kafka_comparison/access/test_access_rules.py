"""Our answers to callers with each right beside those that Apache Kafka gave in the last comparison."""

from collections.abc import Iterator

import pytest

from pqbroker.testing import broker
from tests.kafka_comparison.access import recorded
from tests.kafka_comparison.access.playing import SETTINGS, GuardedSide, made_side, play, unlisted
from tests.kafka_comparison.access.scenarios import Scenario, scenarios
from tests.kafka_comparison.run import OURS

KAFKAS = recorded.read()


@pytest.fixture(scope="module")
def side() -> Iterator[GuardedSide]:
    """Our broker."""
    with broker(settings={**OURS, **SETTINGS}) as running:
        one = made_side(running.kafka)
        yield one
        one.close()


@pytest.mark.parametrize("scenario", list(scenarios()), ids=lambda each: each.name)
def test_a_right_lets_a_caller_do_what_it_does_in_kafka(scenario: Scenario, side: GuardedSide) -> None:
    kafkas = KAFKAS[scenario.name]
    different = [
        str(each)
        for name, version, ours in play(side, scenario)
        for each in unlisted(name, version, ours, kafkas[name])
    ]
    assert different == []
