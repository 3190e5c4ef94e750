"""`pqbroker acl` at a broker of ours whose caller is a super user."""

from collections.abc import Iterator

import pytest

from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Shell

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker(SETTINGS) as one:
        yield one


@pytest.fixture
def say(running: Broker, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(running.kafka, capsys)


def test_rules_are_added_listed_and_removed(say: Shell) -> None:
    added = say("acl", "add", "--allow", "User:ann", "--operation", "read", "--topic", "orders", "--group", "billing")
    assert added.output.startswith("added 2 access rules\n")
    denied = ("--deny", "User:bob", "--operation", "all", "--topic", "ord", "--prefixed", "--host", "10.0.0.1")
    assert say("acl", "add", *denied).output.startswith("added 1 access rule\n")
    of_orders = say("acl", "list", "--topic", "orders", "--pattern", "match", "--json").objects
    assert {(one["permission"], one["principal"], one["pattern"]) for one in of_orders} == {
        ("allow", "User:ann", "literal"), ("deny", "User:bob", "prefixed"),
    }  # fmt: skip
    assert "User:bob" not in say("acl", "list", "--principal", "User:ann").output
    assert say("acl", "remove", "--principal", "User:ann").status == 2, "there is no terminal to ask at"
    assert say("acl", "remove", "--principal", "User:ann", "--yes").output.startswith("removed 2 access rules\n")
    assert say("acl", "remove", "--principal", "User:ann", "--yes").output == "no access rule matches\n"
    assert len(say("acl", "list", "--json").objects) == 1
    say("acl", "remove", "--host", "10.0.0.1", "--yes")
    assert say("acl", "list").output == "no access rule\n"


def test_the_cluster_has_rules_of_its_own(say: Shell) -> None:
    say("acl", "add", "--allow", "User:ann", "--operation", "alter-configs", "--operation", "DESCRIBE", "--cluster")
    shown = say("acl", "list", "--cluster", "--json").objects
    assert {(one["kind"], one["name"], one["operation"]) for one in shown} == {
        ("cluster", "kafka-cluster", "alter-configs"), ("cluster", "kafka-cluster", "describe"),
    }  # fmt: skip
    say("acl", "remove", "--cluster", "--yes")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("add", "--allow", "User:ann", "--topic", "t"), "give --allow or --deny, --operation, and a resource"),
        (("add", "--allow", "User:ann", "--operation", "reed", "--topic", "t"), "read"),
        (("remove", "--yes"), "say which rules to remove"),
        (("list", "--pattern", "some"), "--pattern is 'some'"),
    ],
)
def test_what_says_too_little_is_refused(say: Shell, words: tuple[str, ...], text: str) -> None:
    said = say("acl", *words)
    assert said.status == 2
    assert text in said.errors


def test_a_refused_rule_is_told_with_its_cause(say: Shell) -> None:
    said = say("acl", "add", "--allow", "ann", "--operation", "read", "--topic", "t")
    assert said.status == 1
    assert "no colon is present" in said.errors


def test_without_access_rules_the_cure_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with memory_broker() as plain:
        for words in (("add", "--allow", "User:a", "--operation", "read", "--topic", "t"), ("list",)):
            said = Shell(plain.kafka, capsys)("acl", *words)
            assert said.status == 1
            assert said.errors.endswith("the setting authorizer.class.name, as in docs/access-rules.md.\n")


def test_the_rights_that_each_request_needs_are_listed(say: Shell, running: Broker) -> None:
    assert running.http is not None
    lines = say.raw("acl", "needs", "--http", running.http).output.splitlines()
    assert any(line.split(maxsplit=1) == ["Fetch", "Read on topic"] for line in lines)
    assert any(line.startswith("GET /v1/node") and line.endswith("Describe on cluster") for line in lines)


def test_a_broker_without_access_rules_names_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with memory_broker() as plain:
        say = Shell(plain.kafka, capsys)
        for words in (("list",), ("add", "--allow", "User:ann", "--operation", "read", "--topic", "t")):
            said = say("acl", *words)
            assert said.status == 1
            assert "No Authorizer is configured" in said.errors
            assert "authorizer.class.name" in said.errors
