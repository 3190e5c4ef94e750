"""Cleaning of a compacted topic on command, for tests."""

from typing import Any

from pqbroker.fixture.http_calls import HttpCalls
from tests.support.waiting import wait_until

PATIENCE_S = 30.0


def clean_topic(calls: HttpCalls, topic: str) -> Any:
    """Have a topic of one partition cleaned, head included, and return how its cleaning stands then."""
    calls.ask("POST", f"/v1/topics/{topic}/clean", {})
    return settled(calls, topic)


def settled(calls: HttpCalls, topic: str, partition: int = 0) -> Any:
    """Return how the cleaning of a partition stands, once nothing is due or under way."""
    shown: list[Any] = []

    def is_settled() -> bool:
        shown[:] = [calls.ask("GET", f"/v1/topics/{topic}/partitions/{partition}")["cleaning"]]
        return shown[0]["state"] not in ("due", "cleaning")

    wait_until(is_settled, f"the cleaner has nothing to do in {topic}:{partition}", PATIENCE_S)
    return shown[0]
