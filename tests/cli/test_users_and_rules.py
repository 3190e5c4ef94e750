"""Logins and access rules together: a super user may do everything, another user what a rule allows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell

SETTINGS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@pytest.fixture(scope="module")
def locked() -> Iterator[Broker]:
    """A broker with access rules, the super user ann and the user bob."""
    with memory_broker(SETTINGS, users={"ann": "first secret", "bob": "second secret"}) as running:
        yield running


class User:
    """A shell of one user."""

    def __init__(self, running: Broker, name: str, shell: Shell, directory: Path) -> None:
        self._shell = shell
        self._config = directory / f"{name}.properties"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in running.login(name).items()))

    def __call__(self, *arguments: str) -> Said:
        return self._shell(*arguments, "--command-config", str(self._config))

    def without_broker(self, *arguments: str) -> Said:
        return self._shell.raw(*arguments, "--command-config", str(self._config))


def test_a_rule_of_a_super_user_lets_another_user_in_at_once_and_out_again(
    locked: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(locked.kafka, capsys)
    ann, bob = (User(locked, name, shell, tmp_path) for name in ("ann", "bob"))
    assert ann("topic", "create", "orders").status == 0
    refused = bob("topic", "describe", "orders")
    assert refused.status == 1
    assert bob("acl", "add", "--allow", "User:bob", "--operation", "all", "--topic", "*").status == 1
    assert ann("acl", "add", "--allow", "User:bob", "--operation", "describe", "--topic", "orders").status == 0
    assert bob("topic", "list", "--json").object["topic"] == "orders"
    assert ann("acl", "remove", "--principal", "User:bob", "--yes").status == 0
    assert bob("topic", "list", "--json").objects == []


def test_over_http_a_user_may_do_what_the_rules_say(
    locked: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(locked.kafka, capsys)
    ann, bob = (User(locked, name, shell, tmp_path) for name in ("ann", "bob"))
    web = ("--http", locked.http)
    shown, refused = [user.without_broker("cell", "list", *web) for user in (ann, bob)]
    assert (shown.status, refused.status) == (0, 1)
    assert "no permission" in refused.errors
