"""`kafka-acls` and `kafka-configs` for quotas say to our broker, with access rules, what they say to Apache Kafka."""

import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.transcripts import GUARDED, GUARDED_DIRECTORY, OURS, perform
from tests.support.java.tools import Tools
from tests.support.serving import served


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with access rules whose callers are super users."""
    with served(settings={**OURS, **GUARDED}) as broker:
        yield broker.kafka


@pytest.fixture(scope="module")
def tools(address: str) -> Iterator[Tools]:
    """The tools, in one Java process."""
    with Tools(address) as tools:
        yield tools


@pytest.mark.parametrize("path", sorted(GUARDED_DIRECTORY.glob("*.txt")), ids=lambda path: path.stem)
def test_tools_say_what_they_say_to_apache_kafka(path: Path, tools: Tools, address: str) -> None:
    theirs = path.read_text(encoding="utf-8")
    ours = perform(theirs, tools, address)
    changes = list(difflib.unified_diff(theirs.splitlines(), ours.splitlines(), "kafka", "ours", lineterm="", n=2))
    assert changes == [], "\n" + "\n".join(changes)
