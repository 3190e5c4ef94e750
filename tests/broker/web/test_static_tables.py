"""Static tables (E.10): for SQL alone, and dynamic again under another topic id; nothing between is ever seen."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_table_resharding import closed_cell, command, filled
from tests.broker.web.test_tables import NAME, SCHEMA, create, insert, reopened, select, tablets

pytestmark = pytest.mark.spec("E.10")

Serve = Callable[..., Awaitable[Web]]
TABLE = f"/v1/tables/{NAME}"


async def converted(web: Web, *, dynamic: bool) -> Any:
    status, table = await command(web, "alter", dynamic=dynamic)
    assert status == 200, table
    assert table["dynamic"] is dynamic
    return table


async def queried(web: Web, column: str = "id") -> Any:
    """Its values in order."""
    query = f"""SELECT list("{column}" ORDER BY "$row_index") AS found FROM "{NAME}" """
    status, answer = await web.ask("POST", "/v1/sql", {"query": query})
    assert status == 200, answer
    return answer["found"]


async def topic_id(web: Web) -> str:
    return str((await web.ask("GET", f"/v1/topics/{NAME}"))[1]["id"])


async def test_a_table_is_created_static_without_rows_and_made_dynamic(web: Web) -> None:
    table = await create(web, dynamic=False, attributes={"max_data_ttl": 5})
    assert (table["dynamic"], table["tablet_count"], table["state"]) == (False, 0, "none")
    for _ in range(2):
        assert await queried(web) is None
        assert (await web.ask("GET", "/v1/topics"))[1]["topics"] == []
        assert (await web.refusal("POST", f"{TABLE}/mount", {}))[:2] == (409, "STATIC_TABLE")
        await reopened_static(web)
    assert (await converted(web, dynamic=True))["state"] == "unmounted"
    assert (await command(web, "mount"))[0] == 200
    await insert(web, {"id": 7})
    assert [row["id"] for row in await select(web)] == [7]
    assert await tablets(web, "mounted_attributes") == [table["attributes"]]


async def test_a_table_is_created_dynamic_by_name(web: Web) -> None:
    assert (await create(web, dynamic=True, tablet_count=2))["tablet_count"] == 2


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"tablet_count": 1}, "INVALID_TABLE"),
        ({"mount": False}, "INVALID_TABLE"),
        ({"tablet_count": 1, "trimmed_row_counts": [0]}, "INVALID_TABLE"),
        ({"attributes": {"commit_ordering": "strong"}}, "INVALID_ATTRIBUTE"),
    ],
)
async def test_what_no_static_table_has_is_refused_at_its_creation(web: Web, given: Any, code: str) -> None:
    body = {"path": "//shop/orders", "schema": SCHEMA, "dynamic": False, **given}
    assert (await web.refusal("POST", "/v1/tables", body))[:2] == (400, code)
    assert (await web.ask("GET", "/v1/tables"))[1]["tables"] == []


async def test_a_static_table_is_for_sql_and_no_topic(web: Web) -> None:
    await filled(web, 3)
    first = await topic_id(web)
    topics = web.node.server.node.cell.current.topics
    id_before = topics.get(NAME).record.topic_id  # type: ignore[union-attr]
    table = await converted(web, dynamic=False)
    assert topics.by_id(id_before) is None
    assert (table["tablet_count"], table["state"]) == (0, "none")
    assert table["attributes"]["commit_ordering"] == "weak"
    for _ in range(2):
        assert (await web.ask("GET", TABLE))[1] == table
        assert await tablets(web, "index") == []
        assert await queried(web) == [0, 10, 11, 20, 21, 22]
        assert [one["name"] for one in (await web.ask("GET", "/v1/tables"))[1]["tables"]] == [NAME]
        assert (await web.ask("GET", "/v1/topics"))[1]["topics"] == []
        assert (await web.refusal("GET", f"/v1/topics/{NAME}"))[:2] == (404, "UNKNOWN_TOPIC_OR_PARTITION")
        assert (await web.node.produce(NAME, b"{}")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await web.ask("GET", "/v1/tree/shop/orders/@dynamic"))[1] is False
        await reopened_static(web)
    again = await converted(web, dynamic=True)
    assert (again["tablet_count"], again["state"]) == (1, "unmounted")
    assert await topic_id(web) != first
    await command(web, "mount")
    await insert(web, {"id": 7})
    assert [(row["$row_index"], row["id"]) for row in await select(web)] == [*enumerate([0, 10, 11, 20, 21, 22, 7])]
    await reopened(web)
    assert await queried(web) == [0, 10, 11, 20, 21, 22, 7]


async def reopened_static(web: Web) -> None:
    """The node opens its cell again; what waits for that names a topic."""
    await web.ask("POST", "/v1/topics", {"name": "other"})
    owner = web.node.server.node.cell
    before = owner.current
    web.node.engine.faults.lose_next()
    await web.ask("POST", "/v1/topics", {"name": "lost"})
    await until(lambda: owner.current is not before and "other" in owner.current.topics.names())
    await web.ask("DELETE", "/v1/topics/other")
    await web.ask("DELETE", "/v1/topics/lost")


@pytest.mark.parametrize("trimmed", [110, 160, 199])
async def test_two_chunks_of_100_rows_trimmed_at_110_leave_100_rows(web: Web, trimmed: int) -> None:
    """The example of E.10, and others of the same chunk; each chunk has two batches."""
    await create(web)
    for first in (0, 50, 100, 150):
        await insert(web, *({"id": number} for number in range(first, first + 50)))
        for verb in ("freeze", "unfreeze") if first % 100 else ():
            await command(web, verb)
    await command(web, "trim", tablet_index=0, trimmed_row_count=trimmed)
    await command(web, "unmount")
    await converted(web, dynamic=False)
    assert await queried(web) == list(range(100, 200))
    await converted(web, dynamic=True)
    await command(web, "mount")
    assert await tablets(web, "trimmed_row_count", "total_row_count") == [(0, 100)]


async def test_a_table_whose_rows_are_all_gone_is_empty(web: Web) -> None:
    await create(web, tablet_count=2, trimmed_row_counts=[10, 20])
    await insert(web, {"id": 1, "$tablet_index": 1}, {"id": 2, "$tablet_index": 1})
    for verb in ("freeze", "unfreeze"):
        await command(web, verb)
    await command(web, "trim", tablet_index=1, trimmed_row_count=22)
    await command(web, "unmount")
    await converted(web, dynamic=False)
    assert await queried(web) is None
    await converted(web, dynamic=True)
    await command(web, "mount")
    assert await tablets(web, "trimmed_row_count", "total_row_count") == [(0, 0)]


async def test_commits_weights_and_sessions_come_along(web: Web) -> None:
    filled_by_table = [{"name": "$timestamp", "type": "uint64"}, {"name": "$cumulative_data_weight", "type": "int64"}]
    await create(web, schema=[*SCHEMA, *filled_by_table], tablet_count=2, trimmed_row_counts=[10, 20])
    batch = {"rows": [{"id": 1, "$tablet_index": 1}, {"id": 2, "$tablet_index": 1}], "session": "s", "sequence": 4}
    assert (await command(web, "rows", **batch))[0] == 200
    before = await select(web, tablet_index=1)
    await command(web, "unmount")
    await converted(web, dynamic=False)
    timestamps = await queried(web, "$timestamp")
    assert timestamps == [row["$timestamp"] for row in before]
    await converted(web, dynamic=True)
    await command(web, "mount")
    assert [(row["$row_index"], row["$cumulative_data_weight"]) for row in await select(web)] == [(0, 25), (1, 50)]
    status, answer = await command(web, "rows", **batch)
    assert (status, answer["duplicate"]) == (200, True), answer


async def test_what_only_dynamic_tables_can_says_so(web: Web) -> None:
    await filled(web, 1)
    await converted(web, dynamic=False)
    for verb, body in (
        ("mount", {}), ("unmount", {}), ("freeze", {}), ("unfreeze", {}), ("remount", {}),
        ("reshard", {"tablet_count": 2}), ("trim", {"tablet_index": 0, "trimmed_row_count": 0}),
        ("rows", {"rows": [{"id": 1}]}),
    ):  # fmt: skip
        status, code, message = await web.refusal("POST", f"{TABLE}/{verb}", body)
        assert (status, code) == (409, "STATIC_TABLE"), verb
        assert message == "//shop/orders is a static table"
    assert (await web.refusal("GET", f"{TABLE}/rows"))[:2] == (409, "STATIC_TABLE")
    assert (await web.refusal("PATCH", TABLE, {"attributes": {"min_data_ttl": 1}}))[:2] == (409, "STATIC_TABLE")
    assert (await web.refusal("POST", "/v1/topics", {"name": NAME, "partitions": 1}))[:2] == (
        409, "TOPIC_ALREADY_EXISTS",
    )  # fmt: skip
    assert (await web.refusal("POST", "/v1/tables", {"path": "//shop/orders", "schema": SCHEMA}))[0] == 409
    assert (await command(web, "alter", schema=[*SCHEMA, {"name": "size", "type": "double"}]))[0] == 200
    assert await queried(web, "size") == [None]
    assert (await web.ask("DELETE", TABLE))[0] == 204
    await reopened_static(web)
    assert (await web.refusal("GET", TABLE))[0] == 404
    await create(web)


async def test_metadata_makes_no_topic_of_a_static_table(serve: Serve) -> None:
    web = await serve(auto_create_topics_enable=True)
    await filled(web, 1)
    await converted(web, dynamic=False)
    client = await web.node.connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=NAME)], allow_auto_topic_creation=True)
    answer = await client.ask(request, 9)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_only_unmounted_tables_become_static_and_a_repeat_changes_nothing(web: Web) -> None:
    await create(web)
    assert (await web.refusal("POST", f"{TABLE}/alter", {"dynamic": False}))[:2] == (409, "WRONG_STATE")
    await converted(web, dynamic=True)
    await command(web, "unmount")
    for dynamic in (False, False, True, True):
        await converted(web, dynamic=dynamic)
    for body in ({}, {"dynamic": True, "schema": SCHEMA}):
        status, _, message = await web.refusal("POST", f"{TABLE}/alter", body)
        assert (status, message) == (400, "give one of schema and dynamic")
    await web.node.create_topic("clicks")
    assert (await web.refusal("POST", "/v1/tables/clicks/alter", {"dynamic": False}))[:2] == (404, "NO_TABLE")


async def test_rows_that_come_before_it_is_decided_refuse_it(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(web, 2)
    reshard = Topics.reshard

    async def reshard_later(topics: Topics, name: str, change: Any) -> Any:
        monkeypatch.setattr(Topics, "reshard", reshard)
        await command(web, "mount")
        await insert(web, {"id": 9, "$tablet_index": 0})
        await command(web, "unmount")
        return await reshard(topics, name, change)

    monkeypatch.setattr(Topics, "reshard", reshard_later)
    assert (await web.refusal("POST", f"{TABLE}/alter", {"dynamic": False}))[:2] == (409, "WRONG_STATE")
    await converted(web, dynamic=False)
    assert await queried(web) == [0, 9, 10, 11]


@pytest.mark.parametrize("since_the_start", [False, True])
async def test_a_table_with_a_tablet_in_a_closed_cell_stays_dynamic(web: Web, *, since_the_start: bool) -> None:
    assert (await web.ask("POST", "/v1/cells", {"bundle": "default"}))[0] == 201
    await filled(web, 2)
    async with closed_cell(web, since_the_start=since_the_start):
        status, code, message = await web.refusal("POST", f"{TABLE}/alter", {"dynamic": False})
        assert (status, code) == (409, "TABLET_NOT_OPEN")
        assert "tablet 1 of //shop/orders is in cell 1, which is not open" in message
    await converted(web, dynamic=False)
    assert await queried(web) == [0, 10, 11]


async def test_static_tables_of_another_cell_move_with_it(web: Web) -> None:
    await web.ask("POST", "/v1/bundles", {"name": "b"})
    for _ in range(2):
        await web.ask("POST", "/v1/cells", {"bundle": "b"})
    await create(web, tablet_count=2, bundle="b")
    await insert(web, {"id": 0, "$tablet_index": 0})
    await insert(web, {"id": 1, "$tablet_index": 1})
    await command(web, "unmount")
    await converted(web, dynamic=False)
    _, listed = await web.ask("GET", "/v1/cells")
    full = [one["id"] for one in listed["cells"] if one["bundle"] == "b" and one["tablets"]]
    assert len(full) == 1
    status, answer = await web.ask("DELETE", f"/v1/cells/{full[0]}?evacuate=true")
    assert status == 204, answer
    assert await queried(web) == [0, 1]
