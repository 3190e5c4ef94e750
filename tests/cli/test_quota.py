"""`pqbroker quota` at a broker of ours."""

from collections.abc import Iterator

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Shell


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


@pytest.fixture
def say(running: Broker, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(running.kafka, capsys)


def test_quotas_are_set_listed_and_removed(say: Shell) -> None:
    assert say("quota", "set", "--for-user", "ann", "--produce", "1024", "--requests", "12.5").output.splitlines() == [
        "user ann: producer_byte_rate is 1024", "user ann: request_percentage is 12.5",
    ]  # fmt: skip
    more = say("quota", "set", "--for-user", "<default>", "--for-client-id", "app", "--consume", "1048577")
    assert more.output == "user <default>, client-id app: consumer_byte_rate is 1048577\n"
    assert say("quota", "list", "--for-client-id", "app").output.split()[-1] == "1048577"
    assert say("quota", "list", "--for-user", "ann", "--json").objects == [
        {"entity": {"user": "ann"}, "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 12.5}}
    ]
    assert len(say("quota", "list", "--json").objects) == 2
    assert "removed" in say("quota", "remove", "--for-user", "ann").output
    assert say("quota", "remove", "--for-user", "ann").output == "user ann has no quota of its own\n"
    say("quota", "remove", "--for-user", "<default>", "--for-client-id", "app")
    assert say("quota", "list").output == "no quota\n"


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("set", "--for-user", "ann"), 2, "give a quota"),
        (("set", "--produce", "1"), 2, "say whose quota"),
        (("remove", "--for-user", "ann", "--for-ip", "10.0.0.1"), 2, "say whose quota"),
        (("set", "--for-ip", "10.0.0.1", "--produce", "1"), 1, "Invalid configuration key producer_byte_rate"),
    ],
)
def test_what_is_no_quota_is_refused(say: Shell, words: tuple[str, ...], status: int, text: str) -> None:
    said = say("quota", *words)
    assert said.status == status
    assert text in said.errors
