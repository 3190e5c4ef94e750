"""Commands tell why a partition has no leader: its tablet is unmounted, or its broker does not serve."""

from pqbroker.cli.kafka.cluster import Partition, Topic, tell_leaderless
from pqbroker.protocol.errors import ErrorCode

LED = Partition(0, 1, 4, [1], [1], ErrorCode.NONE)
UNMOUNTED = Partition(1, -1, 4, [1], [1], ErrorCode.LEADER_NOT_AVAILABLE)
AWAY = Partition(2, -1, -1, [2], [2], ErrorCode.LEADER_NOT_AVAILABLE)
"""Its node is being started, so that nobody knows its epoch."""
OFFLINE = Partition(3, -1, 7, [3, 2], [3], ErrorCode.LEADER_NOT_AVAILABLE, [3, 2])
"""Apache Kafka shows it so."""
NOWHERE = Partition(4, -1, -1, [], [], ErrorCode.LEADER_NOT_AVAILABLE)
TOPIC = Topic("t", False, {one.number: one for one in (LED, UNMOUNTED, AWAY, OFFLINE, NOWHERE)})


def test_each_cause_is_told_with_its_partitions() -> None:
    unmounted = "tablets of t are unmounted: 1; `pqbroker table mount t` mounts them"
    assert tell_leaderless(TOPIC, [1]) == unmounted
    cause = "the brokers that have them (2, 3) do not serve them now, try again later"
    away = f"partitions of t have no leader: 2, 3; {cause}"
    assert tell_leaderless(TOPIC, [2, 3]) == away
    assert tell_leaderless(TOPIC, [1, 2, 3]) == f"{unmounted}; {away}"
    nowhere = "partitions of t have no leader: 4; no broker serves them now, try again later"
    assert tell_leaderless(TOPIC, [4]) == nowhere
