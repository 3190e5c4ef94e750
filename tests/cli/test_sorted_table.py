"""`pqbroker table` of sorted tables, at a broker of ours: created, written, looked up, deleted from, described."""

from collections.abc import Callable, Iterator

import pytest

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, memory_broker
from tests.cli.test_table import TableShell

COLUMNS = (
    "--column", "shop:utf8:ascending", "--column", "id:int64:required:ascending", "--column", "note:utf8",
    "--column", "count:int64",
)  # fmt: skip


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
    said = shell("create", path, *COLUMNS, "--pivot", '["m"]', "--attribute", "max_data_ttl=86400000")
    assert said.output == f"created sorted table {path}, by shop, id, 2 tablets, mounted\n", said
    return path


def test_a_sorted_table_is_listed_described_and_dropped(shell: TableShell, table: str) -> None:
    name = table[2:].replace("/", ".")
    lines = [line.split() for line in shell("list").output.splitlines()]
    assert [table, name, "sorted", "2", "mounted", "default"] in lines
    said = shell("describe", table).output.splitlines()
    assert said[0] == f"sorted table {table}, by shop, id, 2 tablets, mounted"
    assert said[1] == "  max_data_ttl=86400000"
    assert said[2].endswith(f"attributes have their defaults: `pqbroker get {table}/@mount_config` prints them")
    cells = [line.split() for line in said]
    assert ["name", "type", "required", "sort_order"] in cells
    assert ["id", "int64", "yes", "ascending"] in cells
    assert ["note", "utf8", "no", "-"] in cells
    assert [row[:3] for row in cells[-2:]] == [["0", "mounted", "[]"], ["1", "mounted", '["m"]']]
    (shown,) = shell("describe", table, "--json").objects
    assert [one["pivot_key"] for one in shown["tablets"]] == [[], ["m"]]
    assert shell("drop", table, "--yes").output == f"deleted table {table}\n"
    assert shell("describe", table).status == 1


def test_a_key_is_given_without_the_columns_that_the_table_fills(
    shell: TableShell, running: Broker, fresh_name: Callable[[], str]
) -> None:
    path = f"//cli/{fresh_name()}"
    schema = [
        {"name": "hash", "type": "uint64", "sort_order": "ascending", "expression": "hash(id) % 8"},
        {"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "note", "type": "utf8"},
    ]  # fmt: skip
    HttpCalls(lambda: running.http).ask("POST", "/v1/tables", {"path": path, "schema": schema})
    assert shell("insert", path, "--row", '{"id": 5, "note": "x"}').status == 0
    (found,) = shell("lookup", path, "id=5", "--json").objects
    assert (found["id"], found["note"]) == (5, "x")
    assert shell("delete-rows", path, "id=5").output.startswith("deleted the rows of 1 key at ")
    assert shell("delete-rows", path, given="\n").output == "no key was given\n"


def test_rows_are_looked_up_by_keys_as_columns_or_json(shell: TableShell, table: str) -> None:
    said = shell("insert", table, "--row", '{"shop": "a", "id": 1, "count": 5}', "--row", '{"shop": "z", "id": -2}')
    assert said.output.startswith("inserted 2 rows at timestamp ")
    found = shell("lookup", table, "shop=z,id=-2", '{"shop": "a", "id": 1}', "shop=a,id=9", "--json").objects
    assert found == [
        {"shop": "z", "id": -2, "note": None, "count": None}, {"shop": "a", "id": 1, "note": None, "count": 5},
    ]  # fmt: skip
    lines = shell("lookup", table, "shop=a,id=1", "shop=a,id=9").output.splitlines()
    assert [lines[0].split(), lines[2].split()] == [["shop", "id", "note", "count"], ["a", "1", "-", "5"]]
    assert lines[3:] == ['no row has the key {"shop": "a", "id": 9}']
    (one,) = shell("lookup", table, "shop=a,id=1", "--column", "count", "--json").objects
    assert one == {"count": 5}


def test_rows_are_looked_up_by_the_first_columns_of_their_keys(shell: TableShell, table: str) -> None:
    keys = (("a", 2), ("a", 1), ("b", 1), ("z", 5))
    shell("insert", table, given="".join(f'{{"shop": "{shop}", "id": {number}}}\n' for shop, number in keys))
    found = shell("lookup", table, "--prefix", "shop=a", "--column", "id", "--json").objects
    assert found == [{"id": 1}, {"id": 2}]
    assert len(shell("lookup", table, "--prefix", "{}", "--json").objects) == 4
    assert shell("lookup", table, "--prefix", "shop=q").output == f"no row of {table} has such a key\n"
    assert "give keys, or --prefix alone" in shell("lookup", table, "shop=a,id=1", "--prefix", "shop=a").errors
    assert "Give the first columns of the key" in shell("lookup", table, "--prefix", "id=1").errors


def test_an_update_keeps_other_columns_and_rows_are_read_as_they_were(shell: TableShell, table: str) -> None:
    first = shell("insert", table, "--row", '{"shop": "a", "id": 1, "note": "x", "count": 1}', "--json").object
    shell("insert", table, "--row", '{"shop": "a", "id": 1, "count": 2}', "--update")
    assert shell("lookup", table, "shop=a,id=1", "--json").object["note"] == "x"
    second = shell("insert", table, "--row", '{"shop": "a", "id": 1}', "--json").object
    assert second["timestamp"] > first["timestamp"]
    assert shell("lookup", table, "shop=a,id=1", "--json").object["note"] is None
    was = shell("lookup", table, "shop=a,id=1", "--at", str(first["timestamp"]), "--json").object
    assert (was["note"], was["count"]) == ("x", 1)


def test_rows_are_deleted_by_key_and_by_lines(shell: TableShell, table: str) -> None:
    lines = "".join(f'{{"shop": "a", "id": {number}}}\n\n' for number in range(2000))
    assert shell("insert", table, "--json", given=lines).object["rows"] == 2000
    said = shell("delete-rows", table, "shop=a,id=0")
    assert said.output.startswith("deleted the rows of 1 key at timestamp ")
    assert len(shell("lookup", table, "--json", given=lines).objects) == 1999
    assert shell("delete-rows", table, "--json", given=lines).object["rows"] == 2000
    assert shell("lookup", table, "--json", given=lines).output == ""
    assert shell("lookup", table, given=lines).output.splitlines()[-1] == "1990 more keys have no row"


def test_rows_that_are_too_many_for_one_answer_are_looked_up_by_halves(shell: TableShell, table: str) -> None:
    lines = [f'{{"shop": "a", "id": {number}, "note": "{"n" * 20_000}"}}\n' for number in range(100)]
    for begin in (0, 50):
        shell("insert", table, given="".join(lines[begin : begin + 50]))
    keys = "".join(f'{{"shop": "a", "id": {number}}}\n' for number in range(100))
    found = shell("lookup", table, "--json", given=keys).objects
    assert [one["id"] for one in found] == list(range(100))


def test_commands_have_their_other_names(shell: TableShell, table: str) -> None:
    over_http = ("--http", shell.http)
    assert shell.raw("insert-rows", table, "--row", '{"shop": "a", "id": 1}', *over_http).status == 0
    assert shell.raw("lookup-rows", table, "shop=a,id=1", *over_http, "--json").object["shop"] == "a"
    assert shell.raw("delete-rows", table, "shop=a,id=1", *over_http).status == 0
    assert "no row" in shell.raw("lookup-rows", table, "shop=a,id=1", "--columns", "note", "count", *over_http).output


def test_tablets_are_frozen_altered_and_mounted(shell: TableShell, table: str) -> None:
    shell("insert", table, "--row", '{"shop": "a", "id": 1}')
    assert shell("freeze", table).output == f"table {table} is frozen\n"
    assert "tablet 0" in shell("insert", table, "--row", '{"shop": "a", "id": 2}').errors
    assert shell("describe", table).output.splitlines()[-2].split()[3:7] == ["1", "1", "1", "1"], "rows lie in a chunk"
    assert shell("unmount", table).status == 0
    assert "`pqbroker table mount`" in shell("lookup", table, "shop=a,id=1").errors
    assert shell("alter", table, *COLUMNS, "--column", "more:double").output == f"{table} has 5 columns\n"
    assert shell("mount", table, "--first", "0").output == f"table {table} is mounted\n"
    assert shell("insert", table, "--row", '{"shop": "a", "id": 1, "more": 0.5}', "--update").status == 0
    assert shell("lookup", table, "shop=a,id=1", "--json").object["more"] == 0.5


def test_attributes_that_act_otherwise_are_shown(shell: TableShell, table: str) -> None:
    shell.raw("set", f"{table}/@min_data_ttl", "5", "--http", shell.http)
    assert "  min_data_ttl=5, 1800000 until the table is remounted" in shell("describe", table).output.splitlines()
    shell("remount", table, "--first", "1")
    assert "  min_data_ttl=5, 1800000 in tablets 0 until remounted" in shell("describe", table).output.splitlines()


def test_pivots_are_taken_as_other_dynamic_tables_have_them(shell: TableShell, fresh_name: Callable[[], str]) -> None:
    path = f"//{fresh_name()}"
    made = shell("create", path, *COLUMNS, "--pivot-keys", "[]", '["b"]', '["b", 7]', "--json").object
    assert made["pivot_keys"] == [[], ["b"], ["b", 7]]


def test_a_key_of_each_type_is_typed_as_it_is_shown(shell: TableShell, fresh_name: Callable[[], str]) -> None:
    path, types = f"//{fresh_name()}", {"u": "uint64", "d": "double", "b": "boolean", "s": "string", "t": "timestamp"}
    columns = [word for name in types for word in ("--column", f"{name}:{types[name]}:ascending")]
    shell("create", path, *columns, "--column", "value:int8")
    shell("insert", path, "--row", '{"u": 18446744073709551615, "d": 1, "b": true, "s": "7", "t": 5, "value": 1}')
    assert shell("lookup", path, "u=18446744073709551615,d=1,b=true,s=7,t=5", "--json").object["value"] == 1


def test_a_table_is_resharded_by_pivots_and_by_number(shell: TableShell, table: str) -> None:
    lines = "".join(f'{{"shop": "{shop}", "id": {number}}}\n' for shop in "az" for number in range(50))
    shell("insert", table, given=lines)
    shell("unmount", table)
    would = shell("reshard", table, "--pivot", '["a", 20]', "--last", "0", "--dry-run").output
    assert would.startswith(f"{table} would have other tablets: 0 B copied and ")
    said = shell("reshard", table, "--pivot", '["a", 20]', "--last", "0")
    assert said.output.startswith(f"{table} has other tablets, unmounted: 0 B copied and "), said
    shell("reshard", table, "--pivot", '["y"]', "--pivot", '["z"]', "--first", "2")
    (shown,) = shell("describe", table, "--json").objects
    assert shown["pivot_keys"] == [[], ["a", 20], ["m"], ["y"], ["z"]]
    assert shell("reshard", table, "--tablets", "1", "--json").object["tablet_count"] == 1
    shell("mount", table)
    assert len(shell("lookup", table, "--json", given=lines).objects) == 100


def test_the_inside_of_a_table_is_shown_whole_and_by_tablet(shell: TableShell, table: str) -> None:
    shell("insert", table, "--row", '{"shop": "a", "id": 1}', "--row", '{"shop": "a", "id": 2}')
    assert "0  mounted  []             2" in shell("inside", table).output
    shell("freeze", table)
    said = shell("inside", table).output
    assert said.startswith(f"sorted table {table}, frozen; memory of its stores 0 B of 128 MiB")
    assert "since the start: 2 rows flushed" in said
    assert "no task takes chunks of tablet 0: the tablet is frozen" in said
    (flush,) = [line.split() for line in said.splitlines() if "asked for" in line]
    assert flush[1] == "flush"
    lines = [line.split("  ") for line in shell("inside", table, "--tablet", "0").output.splitlines()]
    (chunk,) = [[cell.strip() for cell in line if cell] for line in lines if '["a", 1]' in line]
    assert chunk[1:4] == ["0", '["a", 1]', '["a", 2]']
    assert chunk[-1] == "no compaction: its size does not fit to the others"
    found = shell("inside", table, "--json").object
    assert [one["chunk_count"] for one in found["tablets"]] == [1, 0]
    found = shell("inside", table, "--tablet", "0", "--json").object
    assert [one["rows"] for one in found["chunks"]] == [2]
    assert "next" not in found
    assert shell("inside", table, "--tablet", "2").status == 1


def test_a_range_of_tablets_is_compacted_and_that_is_explained(shell: TableShell, table: str) -> None:
    shell("insert", table, "--row", '{"shop": "a", "id": 1}', "--row", '{"shop": "z", "id": 2}')
    shell("freeze", table)
    assert f"no chunk of {table} is picked now" in shell("explain-compaction", table).output
    said = shell("compact", table, "--first", "1").output
    assert said.startswith(f"chunks of {table} from before revision 1 are compacted; all of it: ")
    assert "MB/s a node" in said
    found = shell("explain-compaction", table, "--json").object
    (task,) = found["tasks"]
    assert (task["tablet_index"], task["kind"], task["reason"]) == (1, "compaction", "forced")
    lines = shell("explain-compaction", table).output.splitlines()
    assert lines[0] == "no task takes chunks of tablets 0,1: the tablet is frozen"
    assert lines[3].endswith("waits: the tablet is frozen")
    assert shell("compact", table, "--last", "2").status == 1


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("create", "//x", "--column", "id:int64:descending"), 2, "as in id:int64:required or id:int64:ascending"),
        (("create", "//x", "--column", "id:int64:key:ascending"), 2, "give ascending for a sorted table"),
        (("create", "//x", "--column", "id:int64:ascending"), 1, "key columns alone"),
        (("create", "//x", *COLUMNS, "--tablets", "2"), 2, "give --pivot once for each tablet but the first"),
        (("create", "//x", *COLUMNS, "--pivot", "m"), 2, "as a JSON list, as in '[5]'"),
        (("create", "//x", *COLUMNS, "--pivot", '["m"]', "--pivot", '["a"]'), 1, "rising order"),
        (("create", "//x", "--column", "id:int64", "--pivot", "[5]"), 2, "no column is `ascending`"),
        (("create", "//x", *COLUMNS, "--config", "value.format=avro"), 1, "it is no topic"),
        (("create", "//x", *COLUMNS, "--attribute", "max_data_tll=5"), 1, "max_data_ttl"),
        (("insert", "TABLE", "--row", '{"shop": "a"}'), 1, "rows[0].id is missing"),
        (("lookup", "TABLE", "a"), 2, "give COLUMN=VALUE with commas between"),
        (("lookup", "TABLE", "{id: 1}"), 2, "key 1 is no JSON object"),
        (("lookup", "TABLE", "shop=a"), 2, "has no id"),
        (("lookup", "TABLE", "shop=a,id=x"), 1, "keys[0].id is no int64"),
        (("lookup", "TABLE", "shop=a,id=1,note=x"), 1, "'note', which is no part of the key"),
        (("lookup", "TABLE", "shop=a,id=1", "--column", "nota"), 1, "note"),
        (("lookup", "TABLE", "shop=a,id=1", "--at", "yesterday"), 2, "'--at'"),
        (("delete-rows", "TABLE", "shop=a"), 2, "key 'shop=a' has no id: give it, or a JSON object"),
        (("delete-rows", "TABLE", '{"shop": "a"}'), 1, "keys[0].id is missing"),
        (("reshard", "TABLE"), 2, "give --tablets, or of a sorted table --pivot"),
        (("reshard", "TABLE", "--tablets", "2", "--pivot", "[5]"), 2, "give --tablets, or"),
        (("reshard", "TABLE", "--tablets", "2", "--trimmed", "1"), 1, "trimmed_row_counts is given"),
        (("reshard", "TABLE", "--pivot", '["m"]', "--first", "9"), 1, "tablet"),
        (("select", "TABLE"), 1, "`pqbroker table lookup` reads it by key"),
        (("trim", "TABLE", "--to", "1", "--yes"), 1, "has no trim"),
        (("alter", "TABLE", "--static"), 1, "is a sorted one"),
        (("lookup", "none", "id=1"), 1, "no topic 'none'"),
        (("delete-rows", "none", "id=1"), 1, "`pqbroker table list` the tables"),
    ],
)
def test_what_cannot_be_is_refused_with_its_cause(
    shell: TableShell, table: str, arguments: tuple[str, ...], status: int, words: str
) -> None:
    said = shell(*(table if word == "TABLE" else word for word in arguments))
    assert said.status == status, said
    assert words in said.errors


def test_verbs_of_sorted_tables_are_refused_for_others(shell: TableShell, fresh_name: Callable[[], str]) -> None:
    path = f"//{fresh_name()}"
    shell("create", path, "--column", "id:int64")
    update = ("insert", path, "--update", "--row", '{"id": 1}')
    for command in (("lookup", path, "id=1"), ("delete-rows", path, "id=1"), update):
        said = shell(*command)
        assert said.status == 1, command
        assert "is no sorted table" in said.errors
        assert "an `ascending` column" in said.errors


def test_a_table_takes_the_bundle_of_its_directory(shell: TableShell, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    for words in (("bundle", "create", name), ("cell", "create", name), ("set", f"//{name}/@tablet_cell_bundle", name)):
        assert shell.raw(*words, "--http", shell.http).status == 0
    assert shell("create", f"//{name}/x", "--column", "id:int64", "--json").object["bundle"] == name
