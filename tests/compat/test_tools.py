"""Kafka's command line tools say to our broker what they say to Apache Kafka (tests/compat/transcripts.py)."""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.transcripts import DIRECTORY, GUARDED_DIRECTORY, OURS, compared, perform, runs
from tests.support.java.tools import CLASSES, Tools
from tests.support.serving import served

_NOT_SERVED = {
    "delegation tokens": {
        "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
    },
    "share groups": {
        "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge", "InitializeShareGroupState",
        "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
        "DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
    },
    "streams groups": {"StreamsGroupHeartbeat", "StreamsGroupDescribe"},
    "a cluster of several nodes": {"UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter"},
}  # fmt: skip
"""Kafka's APIs that a tool is told we do not have: it says so, or does without, which its words alone may not show."""
_API = re.compile(r"^(\w+)\(\d+\): (\d+)(?: to (\d+))? \[usable: (\d+)\],?$", re.MULTILINE)
_CONFIG = re.compile(r"^([a-z.]+)=", re.MULTILINE)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker of its own, with Apache Kafka's node id."""
    with served(settings=OURS) as broker:
        yield broker.kafka


@pytest.fixture(scope="module")
def tools(address: str) -> Iterator[Tools]:
    """The tools, in one Java process."""
    with Tools(address) as tools:
        yield tools


LISTING_ALL = "modern-groups"
"""A transcript that lists every group of its broker."""


def test_tools_say_of_modern_groups_what_they_say_to_apache_kafka() -> None:
    with served(settings=OURS) as broker, Tools(broker.kafka) as own:
        _check(DIRECTORY / f"{LISTING_ALL}.txt", own, broker.kafka)


OTHERS = [path for path in compared() if path.stem != LISTING_ALL]


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_tools_say_what_they_say_to_apache_kafka(path: Path, tools: Tools, address: str) -> None:
    _check(path, tools, address)


def _check(path: Path, tools: Tools, address: str) -> None:
    theirs = path.read_text(encoding="utf-8")
    ours = perform(theirs, tools, address)
    difference = difflib.unified_diff(theirs.splitlines(), ours.splitlines(), "Apache Kafka", "ours", lineterm="", n=1)
    assert ours == theirs, "\n".join(difference)


def test_every_api_but_those_named_is_served_in_versions_that_kafka_has(tools: Tools, address: str) -> None:
    theirs = _apis((DIRECTORY / "api-versions.txt").read_text(encoding="utf-8"))
    ours = _apis(perform("$ kafka-broker-api-versions\n", tools, address))
    assert theirs.keys() - ours.keys() == set().union(*_NOT_SERVED.values())
    assert ours.keys() <= theirs.keys()
    strange = {
        name: versions
        for name, versions in ours.items()
        if not theirs[name][0] <= versions[0] <= versions[1] <= theirs[name][1] or versions[2] != versions[1]
    }
    assert strange == {}


def test_kafkas_broker_configs_are_described(tools: Tools, address: str) -> None:
    theirs = (DIRECTORY / "broker-configs.txt").read_text(encoding="utf-8")
    ours = perform(theirs, tools, address)
    assert set(_CONFIG.findall(theirs)) - set(_CONFIG.findall(ours)) == set()


def test_every_tool_is_in_a_transcript() -> None:
    paths = (*DIRECTORY.glob("*.txt"), *GUARDED_DIRECTORY.glob("*.txt"))
    used = {run.words[0] for path in paths for run in runs(path.read_text(encoding="utf-8"))}
    assert used - {"join", "leave"} == set(CLASSES)


def _apis(text: str) -> dict[str, tuple[int, int, int]]:
    """Lowest, highest and used version of each API."""
    found = _API.findall(text)
    return {name: (int(low), int(high or low), int(usable)) for name, low, high, usable in found}
