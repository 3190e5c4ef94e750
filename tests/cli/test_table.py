"""`pqbroker table`, at a broker of ours."""

from collections.abc import Callable, Iterator

import pytest

from pqbroker.cli.commands.table_shown import ranges_of
from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell, run

COLUMNS = ("--column", "id:int64:required", "--column", "who:utf8:key", "--column", "note:utf8")


class TableShell(Shell):
    """Commands at a broker's HTTP address."""

    def __init__(self, running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(running.kafka, capsys)
        self.http = running.http

    def __call__(self, *arguments: str, given: str = "") -> Said:
        said = ("table", *arguments, "--http", self.http)
        return run(*said, given=given) if given else self.raw(*said)


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


@pytest.fixture
def shell(running: Broker, capsys: pytest.CaptureFixture[str]) -> TableShell:
    return TableShell(running, capsys)


@pytest.fixture
def table(shell: TableShell, fresh_name: Callable[[], str]) -> str:
    """The path of a new table of two tablets."""
    path = f"//cli/{fresh_name()}"
    assert shell("create", path, *COLUMNS, "--tablets", "2").status == 0
    return path


def test_a_table_is_created_listed_described_and_dropped(shell: TableShell, table: str) -> None:
    name = table[2:].replace("/", ".")
    (listed,) = [one for one in shell("list", "--json").objects if one["path"] == table]
    assert (listed["name"], listed["tablet_count"], listed["state"]) == (name, 2, "mounted")
    lines = [line.split() for line in shell("list").output.splitlines()]
    assert [table, name, "ordered", "2", "mounted", "default"] in lines
    (shown,) = shell("describe", table, "--json").objects
    assert [(one["name"], one["type"], one["required"], one["from"]) for one in shown["schema"]] == [
        ("id", "int64", True, "value"), ("who", "utf8", False, "key"), ("note", "utf8", False, "value"),
    ]  # fmt: skip
    assert [one["index"] for one in shown["tablets"]] == [0, 1]
    assert ["id", "int64", "yes", "value"] in [line.split() for line in shell("describe", name).output.splitlines()]
    assert shell("drop", table).status == 2
    assert shell("drop", table, "--yes").output == f"deleted table {table}\n"
    assert shell("describe", table).status == 1


def test_rows_are_inserted_from_arguments_and_lines_and_selected(shell: TableShell, table: str) -> None:
    said = shell("insert", table, "--row", '{"id": 1, "who": "ä", "$tablet_index": 1}')
    assert said.output == f"inserted 1 row, {1 + 8 + 2} bytes by weight\n"
    lines = "".join(f'{{"id": {number}, "$tablet_index": 1}}\n\n' for number in range(2, 2002))
    assert shell("insert", table, "--json", given=lines).objects == [{"rows": 2000, "data_weight": 2000 * 9}]
    (first,) = shell("select", table, "--tablet", "1", "--limit", "1", "--json").objects
    assert first == {"$tablet_index": 1, "$row_index": 0, "id": 1, "who": "ä", "note": None}
    (last,) = shell("select", table, "--tablet", "1", "--from", "2000", "--json").objects
    assert last["id"] == 2001
    shown = shell("select", table, "--tablet", "1", "--limit", "1").output.splitlines()
    assert shown[0].split() == ["$tablet_index", "$row_index", "id", "who", "note"]
    assert shown[2].split() == ["1", "0", "1", "ä", "-"]
    assert shell("select", table, "--tablet", "0").output == f"no rows in tablet 0 of {table} from row 0 on\n"
    (raw,) = shell("select", table, "--tablet", "1", "--limit", "1", "--raw", "--json").objects
    assert (raw["key"], raw["value"]) == ('{"who":"ä"}', '{"id":1}')


def test_a_topic_becomes_a_table_and_none_again(
    shell: TableShell, running: Broker, fresh_name: Callable[[], str]
) -> None:
    topic = fresh_name()
    running.create_topic(topic)
    running.produce(topic, b'{"id": 1}')
    altered = shell("alter", topic, *COLUMNS[:2], "--column", "note:utf8")
    assert altered.output == f"//{topic} has 2 columns\n"
    assert shell("select", topic, "--json").objects == [{"$tablet_index": 0, "$row_index": 0, "id": 1, "note": None}]
    assert shell("insert", topic, "--row", '{"id": 2}').status == 0
    assert "mounted" in shell("describe", topic).output
    assert shell("alter", topic, "--no-schema").output == f"{topic} has no schema now\n"
    assert shell("describe", topic).status == 1
    for wrong in ((), (*COLUMNS[:2], "--no-schema")):
        assert "give every column" in shell("alter", topic, *wrong).errors


def test_a_table_is_static_and_dynamic_again(shell: TableShell, table: str) -> None:
    assert shell("insert", table, "--row", '{"id": 1}').status == 0
    assert "Unmount the whole table first" in shell("alter", table, "--static").errors
    shell("unmount", table)
    assert shell("alter", table, "--static").output == f"{table} is static now\n"
    name = table[2:].replace("/", ".")
    assert shell("describe", table).output.splitlines()[0] == f"static table {table}, {name} in SQL"
    assert "is a static table" in shell("mount", table).errors
    assert shell("alter", table, "--dynamic").output == f"{table} is dynamic now, and unmounted\n"
    assert "give every column" in shell("alter", table, "--static", "--dynamic").errors


def test_a_table_is_created_static(shell: TableShell, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    said = shell("create", f"//{name}", "--column", "id:int64", "--static")
    assert said.output == f"created static table //{name}, {name} in SQL\n"
    assert "without tablets" in shell("create", f"//{name}2", "--column", "id:int64", "--static", "--unmounted").errors


def test_a_table_has_formats(shell: TableShell, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    arguments = ("--column", "id:int64", "--config", "value.format=avro")
    assert shell("create", f"//{name}", *arguments).status == 0
    assert shell("insert", name, "--row", '{"id": 1}').status == 0
    assert "  value.format=avro" in shell("describe", name).output
    assert "value.format=avro" in shell("create", f"//{name}", *arguments[:3], "no").errors


def test_rows_are_trimmed(shell: TableShell, table: str) -> None:
    assert shell("insert", table, *['--row={"id": 1, "$tablet_index": 0}'] * 3).errors == ""
    said = shell("trim", table, "--to", "2", "--yes")
    assert said.output == f"tablet 0 of {table} begins at row 2\n", said
    assert [one["$row_index"] for one in shell("select", table, "--json").objects] == [2]


def test_tablets_are_mounted_and_unmounted(shell: TableShell, table: str) -> None:
    for arguments, state in (
        (("freeze", "--last", "0"), "mixed"),
        (("unfreeze",), "mounted"),
        (("unmount", "--force"), "unmounted"),
        (("mount", "--frozen"), "frozen"),
        (("unmount", "--first", "1"), "mixed"),
        (("unmount",), "unmounted"),
        (("mount",), "mounted"),
        (("remount",), "mounted"),
        (("remount", "--first", "1", "--last", "1"), "mounted"),
    ):
        verb, *more = arguments
        assert shell(verb, table, *more).output == f"table {table} is {state}\n"


def test_attributes_that_act_are_shown_by_tablet(shell: TableShell, table: str) -> None:
    over_http = ("--http", shell.http)
    assert shell.raw("set", f"{table}/@max_data_ttl", "5", *over_http).status == 0
    assert "  max_data_ttl=5, 1800000 until the table is remounted" in shell("describe", table).output.splitlines()
    assert shell.raw("remount-table", table, "--last", "0", *over_http).output == f"table {table} is mounted\n"
    assert "  max_data_ttl=5, 1800000 in tablets 1 until remounted" in shell("describe", table).output.splitlines()
    (shown,) = shell("describe", table, "--json").objects
    assert [one["mounted_attributes"]["max_data_ttl"] for one in shown["tablets"]] == [5, 1_800_000]
    shell("remount", table, "--first", "1")
    assert "  max_data_ttl=5" in shell("describe", table).output.splitlines()


def test_many_tablets_are_shown_asranges_of() -> None:
    assert ranges_of([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert ranges_of([*range(0, 40, 2)]) == "0,2,4,6,8,10,12,14,16,18,…"


def test_a_table_is_resharded(shell: TableShell, table: str) -> None:
    assert shell("unmount", table).status == 0
    arguments = ("--tablets", "3", "--first", "0", "--last", "0", "--trimmed", "10", "--trimmed", "20")
    assert shell("reshard", table, *arguments).output == f"table {table} is unmounted\n"
    (shown,) = shell("describe", table, "--json").objects
    assert [one["trimmed_row_count"] for one in shown["tablets"]] == [0, 10, 20, 0]
    assert "tablet_count" in shell("reshard", table, "--tablets", "6", "--trimmed", "1").errors


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("create", "//x", "--column", "id"), 2, "--column 'id': give NAME:TYPE"),
        (("create", "//x", "--column", "id:int64:requierd"), 2, "id:int64:required"),
        (("create", "//x", "--column", "id:int65"), 1, "int64"),
        (("create", "//x"), 1, "0 columns"),
        (("insert", "TABLE", "--row", "[]"), 2, "row 1 is no JSON object"),
        (("insert", "TABLE", "--row", '{"id": "x"}'), 1, "body.rows[0].id is no int64"),
        (("describe", "none"), 1, "no topic 'none'"),
        (("trim", "TABLE", "--to", "9", "--yes"), 1, "cannot trim tablet 0"),
        (("mount", "TABLE", "--frozen"), 1, "mounted"),
    ],
)
def test_what_cannot_be_is_refused_with_its_cause(
    shell: TableShell, table: str, arguments: tuple[str, ...], status: int, words: str
) -> None:
    said = shell(*(table if word == "TABLE" else word for word in arguments))
    assert said.status == status
    assert words in said.errors


def test_a_refusal_says_how_many_rows_were_inserted_before(shell: TableShell, table: str) -> None:
    lines = '{"id": 1}\n' * 1000 + '{"id": "x"}\n'
    said = shell("insert", table, given=lines)
    assert said.status == 1
    assert "(1000 rows were inserted before)" in said.errors
