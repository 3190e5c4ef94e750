"""Tables through either client."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow
import pytest

from pqbroker.client import ClientError, Column, InsertedRows, TableSummary
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker
from tests.http_client.conftest import done

SCHEMA = (
    Column("id", "int64", is_required=True), Column("note", "utf8"), Column("content", "string"),
    Column("at", "timestamp"), Column("more", "any"), Column("customer", "string", part="key"),
)  # fmt: skip
EMPTY: dict[str, Any] = dict.fromkeys(column.name for column in SCHEMA)


WITHOUT_ZONE = datetime.fromisoformat("1970-01-01T00:00:01.000005")


def row(index: int, **values: Any) -> dict[str, Any]:
    return {"$tablet_index": 0, "$row_index": index, **EMPTY, **values}


async def test_a_table_is_created_described_listed_and_deleted(client: Any, name: str) -> None:
    table = client.table(name)
    made = await done(table.create(SCHEMA, tablet_count=3, attributes={"min_data_ttl": 5}, mount=False))
    assert made.summary == TableSummary(name, f"//{name.replace('.', '/')}", 3, "unmounted", "default")
    assert made.columns == SCHEMA
    assert made.attributes["min_data_ttl"] == 5
    assert await done(table.describe()) == made
    assert made.summary in await done(client.tables())
    assert [(one.index, one.state) for one in await done(table.tablets())] == [(n, "unmounted") for n in range(3)]
    await done(table.delete())
    with pytest.raises(ClientError):
        await done(table.describe())


async def test_rows_are_read_as_they_were_inserted(client: Any, name: str) -> None:
    table = client.table(f"//{name.replace('.', '/')}")
    assert table.name == name
    await done(table.create(SCHEMA))
    inserted = await done(
        table.insert(
            [
                {"id": 1, "note": "ä", "content": b"\xff", "more": {"a": [1]}, "customer": b"c"},
                {"id": 2, "content": b"text", "at": WITHOUT_ZONE},
                {"id": 3, "content": "text", "at": datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1)))},
            ]
        )
    )
    assert inserted.parts == (InsertedRows(0, 0, 3),)
    assert (inserted.row_count, inserted.data_weight) == (3, (1 + 8 + 2 + 1 + 9 + 1) + 2 * (1 + 8 + 4 + 8))
    rows = [
        row(0, id=1, note="ä", content=b"\xff", more={"a": [1]}, customer=b"c"),
        row(1, id=2, content=b"text", at=1_000_005),
        row(2, id=3, content=b"text", at=1_000_000),
    ]
    assert await done(table.select()) == rows
    assert await done(table.rows()) == rows
    assert await done(table.select(first_row_index=1, limit=1)) == rows[1:2]
    raw = await done(table.select(limit=1, is_raw=True))
    assert (raw[0]["key"], raw[0]["value"]) == (
        b'{"customer":"c"}', '{"id":1,"note":"ä","content":{"base64":"/w=="},"more":{"a":[1]}}'.encode(),
    )  # fmt: skip


async def test_a_topic_without_a_schema_has_raw_rows(client: Any, running: Broker, name: str) -> None:
    running.create_topic(name)
    running.produce(name, b"\xff", key="k", headers=[("h", b"x"), ("h", None)])
    (one,) = await done(client.table(name).select())
    assert (one["key"], one["value"]) == (b"k", b"\xff")
    assert one["headers"] == [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]


async def test_many_rows_take_several_requests_and_several_answers(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64"), Column("text", "utf8")], tablet_count=2))
    inserted = await done(table.insert(({"n": n, "text": "x" * 500} for n in range(2500)), tablet_index=1))
    assert inserted.row_count == 2500
    assert len(inserted.parts) > 1
    assert {part.tablet_index for part in inserted.parts} == {1}
    assert [one["n"] for one in await done(table.rows(1))] == list(range(2500))
    assert [one["n"] for one in await done(table.select(1, 100, limit=1100))] == list(range(100, 1200))


async def test_what_is_too_large_for_one_request_goes_in_halves(client: Any, running: Broker, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64"), Column("text", "utf8")]))
    HttpCalls(lambda: running.http).ask(
        "PATCH", f"/v1/topics/{name}/configs", {"configs": {"max.message.bytes": 5000}}
    )
    inserted = await done(table.insert({"n": n, "text": "x" * 1000} for n in range(11)))
    assert len(inserted.parts) == 4
    assert [one["n"] for one in await done(table.rows())] == list(range(11))


async def test_an_error_says_how_many_rows_were_inserted_before_it(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("text", "utf8")]))
    with pytest.raises(ClientError) as refused:
        await done(table.insert({"text": "x" * size} for size in (300_000, 300_000, 1_100_000)))
    assert (refused.value.code, refused.value.status, refused.value.rows_inserted) == ("ROWS_TOO_LARGE", 413, 2)
    assert "(2 rows were inserted before)" in str(refused.value)
    assert len(await done(table.select())) == 2


async def test_mount_states_change_and_writes_follow_them(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64")], tablet_count=2))
    assert (await done(table.freeze())).state == "frozen"
    assert (await done(table.unfreeze(1, 1))).state == "mixed"
    assert (await done(table.insert([{"n": 1}]))).parts[0].tablet_index == 1
    assert (await done(table.unmount(force=True))).state == "unmounted"
    with pytest.raises(ClientError) as refused:
        await done(table.insert([{"n": 1}]))
    assert (refused.value.code, refused.value.status) == ("NO_MOUNTED_TABLETS", 409)
    assert refused.value.cure
    altered = await done(table.alter([Column("n", "int64"), Column("more", "string")]))
    assert [column.name for column in altered.columns] == ["n", "more"]
    assert (await done(table.mount(freeze=True))).state == "frozen"
    assert (await done(table.unfreeze())).state == "mounted"


async def test_a_column_that_is_added_is_read_as_its_type_says(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64")]))
    await done(table.insert([{"n": 1}]))
    assert await done(table.select()) == [{"$tablet_index": 0, "$row_index": 0, "n": 1}]
    await done(table.unmount())
    await done(table.alter([Column("n", "int64"), Column("more", "string")]))
    await done(table.mount())
    await done(table.insert([{"more": b"x"}]))
    assert [one["more"] for one in await done(table.select())] == [None, b"x"]


async def test_rows_are_trimmed_and_attributes_act_after_a_remount(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64")]))
    await done(table.insert({"n": n} for n in range(5)))
    assert await done(table.trim(3)) == 3
    assert [one["n"] for one in await done(table.rows())] == [3, 4]
    described = await done(table.set_attributes({"max_data_versions": 0}))
    assert (described.attributes["max_data_versions"], described.mounted_attributes["max_data_versions"]) == (0, 1)
    await done(table.remount(0, 0))
    (tablet,) = await done(table.tablets())
    assert tablet.mounted_attributes["max_data_versions"] == 0
    await done(table.remount())
    assert (await done(table.describe())).mounted_attributes["max_data_versions"] == 0


async def test_no_rows_are_no_request(client: Any, name: str) -> None:
    assert (await done(client.table(name).insert([]))).parts == ()


async def test_a_value_without_a_json_form_is_an_error(client: Any, name: str) -> None:
    with pytest.raises(TypeError, match="set is no type that rows have"):
        await done(client.table(name).insert([{"n": {1}}]))




@pytest.mark.parametrize("form", ["table", "batch", "reader", "pandas"])
async def test_rows_in_arrow_are_inserted_as_they_are(client: Any, name: str, form: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64"), Column("note", "utf8")], tablet_count=2))
    given = pyarrow.table({"n": range(3), "note": ["a", None, "ä"]})
    forms = {
        "table": given, "batch": given.to_batches()[0], "reader": given.to_reader(), "pandas": given.to_pandas(),
    }  # fmt: skip
    inserted = await done(table.insert(forms[form], tablet_index=1))
    assert inserted.parts == (InsertedRows(1, 0, 3),)
    assert [(one["n"], one["note"]) for one in await done(table.rows(1))] == [(0, "a"), (1, None), (2, "ä")]


async def test_many_rows_in_arrow_take_several_requests(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64"), Column("text", "utf8")]))
    texts = ["x" * (900 if n % 2 else 3) for n in range(2000)]
    inserted = await done(table.insert(pyarrow.table({"n": range(2000), "text": texts})))
    assert inserted.row_count == 2000
    assert len(inserted.parts) > 1
    assert [one["n"] for one in await done(table.rows())] == list(range(2000))


async def test_arrow_rows_too_large_for_one_request_go_in_halves(client: Any, running: Broker, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64")]))
    HttpCalls(lambda: running.http).ask(
        "PATCH", f"/v1/topics/{name}/configs", {"configs": {"max.message.bytes": 500}}
    )
    inserted = await done(table.insert(pyarrow.table({"n": range(100)})))
    assert len(inserted.parts) == 4
    assert [one["n"] for one in await done(table.rows())] == list(range(100))


async def test_an_error_in_arrow_rows_names_row_and_column(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int8")]))
    with pytest.raises(ClientError) as refused:
        await done(table.insert(pyarrow.table({"n": [1, 300]})))
    assert (refused.value.code, refused.value.message) == ("INVALID_ROW", "rows[1].n is no int8")


@pytest.mark.parametrize("kind", ["mappings", "batch", "table"])
async def test_a_batch_of_a_session_is_taken_once(client: Any, name: str, kind: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64")], tablet_count=2))
    columns = {"n": list(range(10_000)), "$tablet_index": [n % 2 for n in range(10_000)]}
    rows: Any = pyarrow.table(columns) if kind == "table" else pyarrow.RecordBatch.from_pydict(columns)
    if kind == "mappings":
        rows = rows.to_pylist()
    elif kind == "table":
        rows = pyarrow.concat_tables([rows.slice(0, 3), rows.slice(3)])
    first = await done(table.insert(rows, session="s", sequence=3))
    assert (first.row_count, len(first.parts), first.is_duplicate) == (10_000, 2, False)
    again = await done(table.insert(rows, session="s", sequence=3))
    assert (again.parts, again.is_duplicate) == (first.parts, True)
    assert (await done(table.insert(rows, session="s", sequence=2))).parts == ()
    assert (await done(table.insert([{"n": -1}], session="s", sequence=4, tablet_index=1))).parts[0].tablet_index == 1
    assert [one["n"] for one in await done(table.rows(1))] == [*range(1, 10_000, 2), -1]
    with pytest.raises(ValueError, match="one is missing"):
        await done(table.insert(rows, session="s"))


async def test_a_batch_of_a_session_has_rows_and_fits_one_request(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("text", "utf8")]))
    too_many = [{"text": "x" * 1000}] * 1100
    for rows in (too_many, pyarrow.Table.from_pylist(too_many)):
        with pytest.raises(ClientError) as refused:
            await done(table.insert(rows, session="s", sequence=1))
        assert refused.value.status == 413
    nothing: list[Any] = []
    for empty in (nothing, pyarrow.table({"text": pyarrow.array([], pyarrow.string())})):
        with pytest.raises(ClientError) as refused:
            await done(table.insert(empty, session="s", sequence=1))
        assert refused.value.status == 400
    assert await done(table.select()) == []


async def test_a_topic_gets_a_schema_and_its_records_are_rows(client: Any, running: Broker, name: str) -> None:
    running.create_topic(name)
    running.produce(name, b'{"n": 1}')
    table = client.table(name)
    assert await done(table.columns()) is None
    altered = await done(table.alter([Column("n", "int64")]))
    assert altered.columns == (Column("n", "int64"),)
    assert await done(table.columns()) == altered.columns
    await done(table.insert([{"n": 2}]))
    assert [row["n"] for row in await done(table.select())] == [1, 2]
    assert await done(client.sql(f'SELECT sum(n) AS n FROM "{name}"').rows()) == [{"n": 3}]


async def test_a_table_is_static_and_dynamic_again(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64")], tablet_count=2))
    await done(table.insert([{"n": 1}], tablet_index=1))
    await done(table.unmount())
    static = await done(table.make_static())
    assert (static.summary.is_dynamic, static.summary.tablet_count, static.summary.state) == (False, 0, "none")
    assert await done(client.sql(f'SELECT n FROM "{name}"').rows()) == [{"n": 1}]
    with pytest.raises(ClientError, match="is a static table"):
        await done(table.insert([{"n": 2}]))
    dynamic = await done(table.make_dynamic())
    assert (dynamic.summary.is_dynamic, dynamic.summary.tablet_count, dynamic.summary.state) == (True, 1, "unmounted")


async def test_one_mapping_in_the_place_of_a_list_is_refused(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("id", "int64", sort_order="ascending"), Column("text", "utf8")]))
    for call in (table.insert, table.lookup, table.delete_rows):
        with pytest.raises(TypeError, match="give a list of mappings"):
            await done(call({"id": 1}))
