"""Cleaning of a compacted topic on command, for tests."""

import time
from typing import Any

from pqbroker.fixture.http_calls import HttpCalls

PATIENCE_S = 30.0


def clean_topic(calls: HttpCalls, topic: str) -> Any:
    """Have a topic of one partition cleaned, head included, and return how its cleaning stands then."""
    calls.ask("POST", f"/v1/topics/{topic}/clean", {})
    return settled(calls, topic)


def settled(calls: HttpCalls, topic: str, partition: int = 0) -> Any:
    """Return how the cleaning of a partition stands, once nothing is due or under way."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        cleaning = calls.ask("GET", f"/v1/topics/{topic}/partitions/{partition}")["cleaning"]
        if cleaning["state"] not in ("due", "cleaning"):
            return cleaning
        assert time.monotonic() < deadline, f"after {PATIENCE_S:g} s still: {cleaning}"
