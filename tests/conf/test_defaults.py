"""What a topic is set to when it leaves something open."""

import pytest

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, parse
from pqbroker.conf.defaults import check_changed, topic_config
from pqbroker.conf.topic import TopicConfig


def test_a_node_that_is_set_to_nothing_gives_kafkas_defaults() -> None:
    assert topic_config({}, BrokerSettings()) == TopicConfig()


def test_a_node_setting_holds_where_the_topic_leaves_it_open() -> None:
    texts = {"log.retention.bytes": "7", "message.max.bytes": "9", "log.cleanup.policy": "compact"}
    node = parse(BrokerSettings, texts)
    config = topic_config({"retention.bytes": "8"}, node)
    assert (config.retention_bytes, config.max_message_bytes, config.cleanup_policy) == (8, 9, ("compact",))


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "1", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, -1),
    ],
)
def test_the_finest_retention_time_that_is_set_decides(texts: dict[str, str], retention_ms: int) -> None:
    assert topic_config({}, parse(BrokerSettings, texts)).retention_ms == retention_ms


def test_configs_of_one_resource_have_a_limit_and_may_always_become_less() -> None:
    node = BrokerSettings(config_bytes_max=1024)
    name = "leader.replication.throttled.replicas"
    check_changed({name: "1:1," * 240}, {}, node)
    with pytest.raises(ConfigError, match=r"limit is 1024: .* pqbroker\.config\.bytes\.max"):
        check_changed({name: "1:1," * 300}, {}, node)
    with pytest.raises(ConfigError, match="limit is 1024"):
        check_changed({name: "1:1," * 500}, {name: "1:1," * 400}, node)
    check_changed({name: "1:1," * 300}, {name: "1:1," * 400}, node)


def test_the_least_age_of_cleaned_records_is_not_above_the_greatest() -> None:
    node, least, most = BrokerSettings(), "min.compaction.lag.ms", "max.compaction.lag.ms"
    check_changed({least: "5", most: "5"}, {}, node)
    for texts, stored in (({least: "6", most: "5"}, {}), ({least: "6", most: "5"}, {most: "5"})):
        with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms is 6, more than max\.compaction\.lag\.ms, 5"):
            check_changed(texts, stored, node)
    check_changed({least: "6", most: "5", "segment.ms": "9"}, {least: "6", most: "5"}, node)  # of an earlier version
