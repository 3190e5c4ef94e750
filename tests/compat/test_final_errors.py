"""A client that wants what is not served here gets an error that names it, at once, instead of waiting for ever."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError

from tests.support.java import program

ERROR_WITHIN_S = 5
USES = {
    "admin with SASL": ("IllegalSaslStateException", "Unexpected handshake request"),
    "producer with SASL": ("IllegalSaslStateException", "Unexpected handshake request"),
    "consumer with group.protocol=consumer": ("UnsupportedVersionException", "group.protocol=classic"),
    "share consumer": ("UnsupportedVersionException", "does not support the share group protocol"),
}
"""What the Java client throws, and what of its text says why."""


@pytest.fixture(scope="module")
def outcomes(kafka: str) -> Iterator[dict[str, dict[str, Any]]]:
    """Of each use in turn, in one Java process."""
    process = program.start("FinalErrors", [kafka, "of-no-record"], program.NEWER)
    assert process.stdout is not None
    try:
        yield json.loads(next(line for line in process.stdout if line.startswith("{")))
    finally:
        program.stop(process)


@pytest.mark.parametrize("use", USES)
def test_a_java_client_names_what_is_not_served(outcomes: dict[str, dict[str, Any]], use: str) -> None:
    outcome, (error, text) = outcomes[use], USES[use]
    assert outcome["error"] == error, outcome
    assert text in outcome["text"]
    assert outcome["ms"] < ERROR_WITHIN_S * 1000


def test_librdkafkas_consumer_with_the_new_protocol_ends_with_a_fatal_error(kafka: str, topic: str) -> None:
    options = {"bootstrap.servers": kafka, "log_level": 0, "group.id": "of-the-new-protocol"}
    consumer = Consumer({**options, "group.protocol": "consumer"})
    deadline = time.monotonic() + ERROR_WITHIN_S
    consumer.subscribe([topic])
    told = None
    while told is None and time.monotonic() < deadline:
        told = consumer.poll(0.2)
    consumer.close()
    assert told is not None, f"no error within {ERROR_WITHIN_S} s"
    error = told.error()
    assert error is not None
    assert error.code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat" in error.str()
