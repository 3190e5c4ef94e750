"""Fetch sessions that name more partitions than anybody could read."""

from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.attacked import TURN_EVER_S_MAX, Caller, attacked

PARTITIONS = 2_000
FIT = 8
NAMED_MAX = 20_000
"""The last eighth is kept for those with few."""


def test_sessions_of_unknown_partitions() -> None:
    with attacked({"pqbroker.fetch.session.partitions.max": str(NAMED_MAX)}, turn_s_max=TURN_EVER_S_MAX) as node:
        attackers = [node.connect() for _ in range(FIT + 2)]
        kept = [_opens_session(attacker, number) for number, attacker in enumerate(attackers)]
        assert kept == [True] * FIT + [False] * 2
        attackers[0].close()
        assert _opens_session(attackers[-1], 0)
        for attacker in attackers[1:]:
            attacker.close()


def _opens_session(attacker: Caller, number: int) -> bool:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(PARTITIONS)]
    topics = [FetchTopic(topic=f"{number:0249}", partitions=partitions)]
    answer = attacker.ask(FetchRequest(session_id=0, session_epoch=0, max_bytes=1, topics=topics), 12)
    return bool(answer.session_id)
