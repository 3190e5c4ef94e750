"""Sorted tables through either client: created, written, looked up as they are and were, deleted from."""

from collections.abc import Callable
from typing import Any

import pyarrow
import pytest

from pqbroker.client import ClientError, Column, TableSummary
from tests.http_client.conftest import done

SCHEMA = (
    Column("shop", "string", sort_order="ascending"), Column("id", "int64", is_required=True, sort_order="ascending"),
    Column("note", "utf8"), Column("content", "string"), Column("more%b", "any"),
)  # fmt: skip


def row(shop: bytes, number: int, **values: Any) -> dict[str, Any]:
    return {"shop": shop, "id": number, "note": None, "content": None, "more%b": None, **values}


def key(shop: bytes, number: int) -> dict[str, Any]:
    return {"shop": shop, "id": number}


async def test_a_table_is_created_described_listed_and_deleted(client: Any, name: str) -> None:
    table = client.table(name)
    made = await done(table.create(SCHEMA, pivot_keys=[[], ["m"], ["m", 5]], attributes={"min_data_ttl": 5}))
    assert made.summary == TableSummary(name, f"//{name.replace('.', '/')}", 3, "mounted", "default", is_sorted=True)
    assert made.columns == SCHEMA
    assert made.pivot_keys == ((), ("m",), ("m", 5))
    assert made.attributes["min_data_ttl"] == 5
    assert await done(table.describe()) == made
    assert made.summary in await done(client.tables())
    tablets = await done(table.tablets())
    assert [(one.pivot_key, one.total_row_count) for one in tablets] == [((), None), (("m",), None), (("m", 5), None)]
    await done(table.delete())
    with pytest.raises(ClientError):
        await done(table.describe())


async def test_rows_are_looked_up_as_they_were_inserted(client: Any, name: str) -> None:
    table = client.table(f"//{name.replace('.', '/')}")
    await done(table.create(SCHEMA, pivot_keys=[[], ["m"]]))
    rows = [row(b"a\xff", 1, note="ä", content=b"\xff"), row(b"z", 2, content=b"text", **{"more%b": {"a": [1]}})]
    inserted = await done(table.insert(rows))
    assert (inserted.row_count, inserted.parts) == (2, ())
    assert await done(table.lookup([key(b"z", 2), key(b"b", 1), key(b"a\xff", 1)])) == [rows[1], None, rows[0]]
    found = await done(table.lookup([key(b"z", 2)], columns=["content", "more%b"]))
    assert found == [{"content": b"text", "more%b": {"a": [1]}}]
    assert await done(table.lookup([])) == []


async def test_rows_are_looked_up_by_the_first_columns_of_their_keys(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA, pivot_keys=[[], [b"a".decode(), 2]]))
    rows = [row(b"a", number) for number in range(4)]
    first = await done(table.insert([*reversed(rows), row(b"b\xff", 1)]))
    await done(table.delete_rows([key(b"a", 1)]))
    assert await done(table.lookup_prefix({"shop": b"a"})) == [rows[0], *rows[2:]]
    assert await done(table.lookup_prefix({"shop": b"a"}, timestamp=first.timestamp, columns=["id"])) == [
        {"id": number} for number in range(4)
    ]  # fmt: skip
    assert await done(table.lookup_prefix({"shop": b"b\xff"}, columns=["shop"])) == [{"shop": b"b\xff"}]
    assert await done(table.lookup_prefix({"shop": b"q"})) == []


async def test_an_update_keeps_other_columns_and_rows_are_read_as_they_were(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    first = await done(table.insert([row(b"a", 1, note="one", content=b"c")]))
    second = await done(table.insert([{**key(b"a", 1), "note": "two"}], update=True))
    third = await done(table.insert([{**key(b"a", 1), "note": "three"}]))
    assert first.timestamp < second.timestamp < third.timestamp
    for inserted, note, content in ((first, "one", b"c"), (second, "two", b"c"), (third, "three", None)):
        (found,) = await done(table.lookup([key(b"a", 1)], timestamp=inserted.timestamp))
        assert found == row(b"a", 1, note=note, content=content)


async def test_rows_in_arrow_are_inserted_and_update(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    whole = {"shop": [b"a", b"b"], "id": [1, 2], "note": ["one", None], "content": [b"c", b"d"]}
    inserted = await done(table.insert(pyarrow.table(whole)))
    assert (inserted.row_count, inserted.parts) == (2, ())
    await done(table.insert(pyarrow.table({"shop": [b"a"], "id": [1], "note": ["two"]}), update=True))
    assert await done(table.lookup([key(b"a", 1), key(b"b", 2)])) == [
        row(b"a", 1, note="two", content=b"c"), row(b"b", 2, content=b"d"),
    ]  # fmt: skip


async def test_rows_are_deleted_by_key(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    inserted = await done(table.insert([row(b"a", number) for number in range(3)]))
    deleted = await done(table.delete_rows([key(b"a", 1), key(b"b", 1)]))
    assert deleted.row_count == 2
    assert deleted.timestamp > inserted.timestamp
    found = await done(table.lookup([key(b"a", number) for number in range(3)]))
    assert found == [row(b"a", 0), None, row(b"a", 2)]
    nothing = await done(table.delete_rows([]))
    assert (nothing.row_count, nothing.timestamp) == (0, None)


async def test_many_keys_take_several_requests_and_long_ones_go_in_halves(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    keys = [key(b"%d" % number * 900, number % 7) for number in range(1200)]
    inserted = await done(table.insert({**one, "note": str(at)} for at, one in enumerate(keys)))
    assert inserted.row_count == 1200
    found = await done(table.lookup(keys))
    assert [one["note"] for one in found] == [str(at) for at in range(1200)]
    assert (await done(table.delete_rows(keys))).row_count == 1200
    assert await done(table.lookup(keys)) == [None] * 1200


async def test_rows_that_are_too_many_for_one_answer_take_several(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    rows = [row(b"a", number, note="n" * 100_000) for number in range(30)]
    await done(table.insert(rows))
    assert await done(table.lookup([key(b"a", number) for number in range(30)])) == rows


async def test_a_table_is_unmounted_altered_and_mounted(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    await done(table.insert([row(b"a", 1, note="one")]))
    assert (await done(table.unmount())).state == "unmounted"
    with pytest.raises(ClientError) as refused:
        await done(table.lookup([key(b"a", 1)]))
    assert (refused.value.code, refused.value.status) == ("WRONG_STATE", 409)
    altered = await done(table.alter([*SCHEMA, Column("later", "string")]))
    assert altered.columns[-1] == Column("later", "string")
    assert (await done(table.mount())).state == "mounted"
    await done(table.insert([{**key(b"a", 1), "later": b"\xfe"}], update=True))
    assert await done(table.lookup([key(b"a", 1)])) == [row(b"a", 1, note="one", later=b"\xfe")]


async def test_what_the_other_kind_of_table_has_is_refused(client: Any, name: str) -> None:
    ordered, table = client.table(f"{name}-o"), client.table(name)
    await done(ordered.create([Column("id", "int64")]))
    await done(table.create(SCHEMA))
    one, rows = [{"id": 1}], [row(b"a", 1)]
    calls: list[tuple[str, Callable[..., Any], list[Any], dict[str, Any]]] = [
        ("NOT_SORTED", ordered.lookup, [one], {}),
        ("NOT_SORTED", ordered.delete_rows, [one], {}),
        ("NOT_SORTED", ordered.insert, [one], {"update": True}),
        ("SORTED_TABLE", table.insert, [rows], {"session": "s", "sequence": 1}),
        ("SORTED_TABLE", table.trim, [1], {}),
        ("SORTED_TABLE", table.select, [], {}),
        ("SORTED_TABLE", table.make_static, [], {}),
    ]
    for code, call, arguments, options in calls:
        with pytest.raises(ClientError) as refused:
            await done(call(*arguments, **options))
        assert refused.value.code == code
    with pytest.raises(ValueError, match="leave one of them out"):
        await done(table.insert(rows, session="s", sequence=1, update=True))
    assert await done(table.lookup([key(b"a", 1)])) == [None]
