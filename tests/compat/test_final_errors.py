"""A client that wants what is not served here gets an error that names it, at once, instead of waiting for ever."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.java import program

ERROR_WITHIN_S = 20
USES = {
    "admin with SASL": ("IllegalSaslStateException", "Unexpected handshake request"),
    "producer with SASL": ("IllegalSaslStateException", "Unexpected handshake request"),
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
