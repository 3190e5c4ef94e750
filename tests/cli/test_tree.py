"""`pqbroker get`, `list` and `set`, and the commands of tables under their other names, at a broker of ours."""

import json
from collections.abc import Callable, Iterator

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
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


def test_paths_exist_or_not(say: Callable[..., Said]) -> None:
    for path in ("//", "//shop", "//shop/orders", "//shop/orders/@schema", "//sys/tablet_cells/0/changelogs"):
        assert say("exists", path).output == "true\n", path
    for path in ("//shop/nothing", "//shop/orders/@nothing", "//sys/foo", "//sys/tablets/x", "//sys/tablet_cells/9"):
        said = say("exists", path)
        assert (said.status, said.output) == (0, "false\n"), path
    assert say("exists", "//shop//orders").status == 1
    assert "below //sys" in say("table", "create", "//sys/foo", "--column", "id:int64").errors


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


def test_commands_and_options_of_other_dynamic_tables_are_taken(say: Callable[..., Said]) -> None:
    assert say("table", "create", "//seed", "--column", "id:int64", "--tablets", "5").status == 0
    assert say("insert-rows", "//seed", "--row", '{"id": 1}', "--row", '{"id": 2}').status == 0
    assert say("trim-rows", "//seed", "--tablet-index", "0", "--trimmed-row-count", "0", "--yes").status == 0
    assert say("select-rows", "//seed", "--raw").status == 0
    assert say("select-rows", "SELECT count(*) AS n FROM seed").output.split()[-1] == "2"
    say("unmount-table", "//seed")
    resharded = say(
        "reshard-table", "//seed", "--tablet-count", "5", "--first-tablet-index", "1", "--last-tablet-index", "3",
        "--trimmed-row-counts", "10", "20",
    )  # fmt: skip
    assert resharded.output == "table //seed is unmounted\n"
    tablets = json.loads(say("get", "//seed/@tablets", "--json").output)
    assert [tablet["trimmed_row_count"] for tablet in tablets[4:6]] == [10, 20]


def test_a_negative_number_is_a_value(say: Callable[..., Said]) -> None:
    told = say("set", "//shop/orders/@max_data_ttl", "-5").errors
    assert "max_data_ttl" in told
    assert "option" not in told
    assert "no such option -x" in say("set", "//shop/orders/@max_data_ttl", "-x").errors


def test_a_directory_gives_its_bundle(say: Callable[..., Said]) -> None:
    say("bundle", "create", "inherited")
    assert say("set", "//dir/@tablet_cell_bundle", "inherited").output == '"inherited"\n'
    assert say("get", "//dir/@tablet_cell_bundle").output == '"inherited"\n'
    assert say("set", "//dir/@tablet_cell_bundle", "null").output == '"default"\n'


def test_options_of_a_bundle_without_effect_say_so_and_a_cell_that_is_not_run_says_why(
    say: Callable[..., Said],
) -> None:
    told = say("bundle", "create", "tagged", "--filter", "ssd", "--option", "snapshot_account=x").output
    assert "stored without effect: snapshot_account" in told
    assert "offline" in say("cell", "create", "tagged").output
    listed = say("cell", "list").output
    assert "bundle tagged runs on nodes of 'ssd', and pqbroker.node.tags of this one is none" in listed
