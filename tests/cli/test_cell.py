"""`pqbroker cell` and `pqbroker bundle`, at a broker of ours."""

from collections.abc import Callable, Iterator

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell
from tests.support.cli_page import KEYS


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


@pytest.fixture
def say(running: Broker, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    shell = Shell(running.kafka, capsys)
    return lambda *arguments: shell.raw(*arguments, "--http", running.http)


def test_bundles_and_cells_are_made_shown_changed_and_removed(say: Callable[..., Said]) -> None:
    made = say("bundle", "create", "fast", "--filter", "!old", "--json").object
    assert ", ".join(made) == KEYS["bundle list"]
    assert (made["name"], made["node_tag_filter"], made["cells"]) == ("fast", "!old", [])
    cell = say("cell", "create", "fast", "--json").object
    assert ", ".join(cell) == KEYS["cell list"]
    assert [one["bundle"] for one in say("cell", "list", "--json").objects] == ["default", "fast"]
    lines = [line.split() for line in say("cell", "list").output.splitlines()]
    assert ["1", "fast", "good", "1", "1", "0", "-"] in lines
    option = "clock_cluster_tag=7"
    changed = say("bundle", "set", "fast", "--option", option, "--option", "changelog_account=a", "--json").object
    assert (changed["options"]["clock_cluster_tag"], changed["options"]["changelog_account"]) == (7, "a")
    said = say("bundle", "set", "fast", "--filter", "!old")
    assert said.output.startswith("changed bundle fast; its health is good\n")
    assert ["fast", "good", "!old", "1"] in [line.split() for line in say("bundle", "list").output.splitlines()]
    assert say("bundle", "remove", "fast", "--yes").status == 1
    assert say("cell", "remove", "1").status == 2
    assert say("cell", "remove", "1", "--yes").output == "removed cell 1\n"
    assert say("bundle", "remove", "fast", "--yes").output == "removed bundle fast\n"
    assert [one["name"] for one in say("bundle", "list", "--json").objects] == ["default"]


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("cell", "create", "no"), 1, "there is no bundle 'no'"),
        (("cell", "remove", "0", "--yes"), 1, "the system cell"),
        (("bundle", "create", "b", "--filter", "a&&b"), 1, "invalid at character 3"),
        (("bundle", "set", "default", "--option", "peer_count"), 2, "give NAME=VALUE"),
        (("cell", "move", "9", "--node", "2"), 1, "there is no cell 9. `pqbroker bundle list` and"),
        (("bundle", "set", "default", "--option", "peer_count=2"), 1, "give 1 to 1"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    say: Callable[..., Said], arguments: tuple[str, ...], status: int, told: str
) -> None:
    said = say(*arguments)
    assert (said.status, told in said.errors) == (status, True), said.errors
