"""`pqbroker get`, `list` and `set`, and the commands of tables under their other names, at a broker of ours."""

import json
from collections.abc import Callable, Iterator

import pytest

from pqbroker.testing import MEMORY, Broker, broker
from tests.cli.shell import Said, Shell


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker(MEMORY) as one:
        yield one


@pytest.fixture
def say(running: Broker, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    shell = Shell(running.kafka, capsys)
    return lambda *arguments: shell.raw(*arguments, "--http", running.http)


@pytest.fixture(scope="module", autouse=True)
def _table(running: Broker) -> None:
    from pqbroker.client import Client, Column

    with Client(running.http) as client:
        client.table("//shop/orders").create([Column("id", "int64")])


def test_names_are_listed(say: Callable[..., Said]) -> None:
    assert say("list").output.splitlines() == ["shop", "sys"]
    assert say("list", "//shop", "--json").objects == [{"name": "orders"}]
    assert say("list", "shop/orders").output == ""


def test_what_is_set_is_printed_and_acts_after_remount_table(say: Callable[..., Said]) -> None:
    assert say("set", "//shop/orders/@max_data_ttl", "86400000").output == "86400000\n"
    assert json.loads(say("get", "//shop/orders/@mounted_attributes/max_data_ttl").output) != 86_400_000
    assert "mounted" in say("remount-table", "//shop/orders").output
    assert say("get", "//shop/orders/@mounted_attributes/max_data_ttl", "--json").output == "86400000\n"
    assert json.loads(say("get", "//shop/orders").output)["path"] == "//shop/orders"


def test_a_text_needs_no_quotes(say: Callable[..., Said]) -> None:
    assert say("bundle", "create", "b").status == 0
    assert say("set", "//sys/tablet_cell_bundles/b/@node_tag_filter", "ssd & !old").output == '"ssd & !old"\n'


def test_commands_of_tables_have_their_other_names(say: Callable[..., Said]) -> None:
    assert say("freeze-table", "//shop/orders").output == "table //shop/orders is frozen\n"
    assert say("unfreeze-table", "shop.orders").output == "table //shop/orders is mounted\n"
    assert say("unmount-table", "//shop/orders").output == "table //shop/orders is unmounted\n"
    assert say("mount-table", "//shop/orders").output == "table //shop/orders is mounted\n"


def test_what_is_not_there_is_told_with_what_there_is(say: Callable[..., Said]) -> None:
    assert "List what there is in //shop" in say("get", "//shop/nothing").errors
    assert "max_data_ttl" in say("get", "//shop/orders/@nothing").errors
    assert say("dance-table", "//shop/orders").status == 2
