"""Times of groups are within the node's bounds when they are set, and while they are in force."""

from dataclasses import replace

import pytest

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.group_times import check_consumer_settings, check_group_times, group_times

NODE = BrokerSettings()
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


def test_a_group_that_sets_nothing_has_the_times_of_the_node() -> None:
    assert group_times({}, NODE) == (45_000, 5_000, 1_000)


@pytest.mark.parametrize(
    ("name", "least", "most"), [(SESSION, 45_000, 60_000), (HEARTBEAT, 5_000, 15_000), (ASSIGNMENT, 0, 15_000)]
)
def test_a_time_is_set_within_the_bounds_of_the_node(name: str, least: int, most: int) -> None:
    for value in (least, most):
        check_group_times({name: str(value)}, {}, NODE)
        assert value in group_times({name: str(value)}, NODE)
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError):
            check_group_times({name: str(value)}, {}, NODE)


def test_bounds_that_have_moved_limit_what_is_set() -> None:
    moved = replace(
        NODE, group_consumer_min_session_timeout_ms=1_000, group_consumer_max_session_timeout_ms=30_000,
        group_consumer_min_heartbeat_interval_ms=7_000,
    )  # fmt: skip
    texts = {SESSION: "50000", HEARTBEAT: "6000"}
    assert group_times(texts, moved)[:2] == (30_000, 7_000)
    check_group_times({**texts, ASSIGNMENT: "5"}, texts, moved)


def test_an_invalid_text_of_another_version_leaves_the_time_of_the_node() -> None:
    assert group_times({SESSION: "soon"}, NODE) == group_times({}, NODE)


def test_a_session_lasts_longer_than_a_heartbeat_interval() -> None:
    node = replace(NODE, group_consumer_min_session_timeout_ms=1)
    check_group_times({SESSION: "5001"}, {}, node)
    with pytest.raises(ConfigError, match=r"consumer\.session\.timeout\.ms must be greater than"):
        check_group_times({SESSION: "5000"}, {}, node)
    with pytest.raises(ConfigError):
        check_group_times({SESSION: "5001", HEARTBEAT: "5001"}, {SESSION: "5001"}, node)


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_consumer_session_timeout_ms": 44_999},
        {"group_consumer_heartbeat_interval_ms": 15_001},
        {"group_consumer_min_assignment_interval_ms": 15_001},
        {"group_consumer_min_session_timeout_ms": 1, "group_consumer_session_timeout_ms": 5_000},
        {"group_consumer_assignors": ()},
    ],
    ids=str,
)
def test_settings_of_a_node_that_do_not_agree_are_refused(wrong: dict[str, object]) -> None:
    check_consumer_settings(NODE)
    with pytest.raises(ConfigError, match=r"group\.consumer\."):
        check_consumer_settings(replace(NODE, **wrong))  # type: ignore[arg-type]
