"""Cells and bundles over HTTP: what is made, what is refused, and what clients of several cells see."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.conf.shares import address_of
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.ids import CellId
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_metrics import scrape

pytestmark = pytest.mark.spec("D.5")

Serve = Callable[..., Awaitable[Web]]


async def cells_of(web: Web) -> dict[int, dict[str, Any]]:
    _, document = await web.ask("GET", "/v1/cells")
    return {cell["id"]: cell for cell in document["cells"]}


def opened(web: Web) -> OpenCell:
    return web.node.server.node.cell.current


def engine_of(web: Web, cell: int) -> MemoryEngine:
    return web.node.engine.sibling(str(cell), must_exist=False)


async def with_cells(web: Web, count: int, bundle: str = "b", *, partitions: int = 6) -> None:
    """A bundle with cells, and a topic t in it, one partition a tablet."""
    assert (await web.ask("POST", "/v1/bundles", {"name": bundle}))[0] == 201
    for _ in range(count):
        assert (await web.ask("POST", "/v1/cells", {"bundle": bundle}))[0] == 201
    await create(web, "t", bundle, partitions)


async def create(web: Web, name: str, bundle: str, partitions: int = 1) -> None:
    configs = {"pq.bundle": bundle, "pq.partitions.per.tablet": "1"}
    status, document = await web.ask("POST", "/v1/topics", {"name": name, "partitions": partitions, "config": configs})
    assert status == 201, document


def homes(web: Web, topic: str = "t") -> tuple[int, ...]:
    found = opened(web).topics.get(topic)
    assert found is not None
    return found.record.cells


async def write(web: Web, topic: str, partition: int, text: str) -> int:
    status, document = await web.ask(
        "POST", f"/v1/topics/{topic}/records", {"records": [{"partition": partition, "value": text}]}
    )
    assert status == 201, document
    offset: int = document["offsets"][0]["offset"]
    return offset


async def values(web: Web, topic: str, partition: int) -> list[str]:
    status, document = await web.ask("GET", f"/v1/topics/{topic}/records?partition={partition}&from=beginning")
    assert status == 200, document
    return [record["value"] for record in document["records"]]


async def test_a_node_begins_with_the_system_cell_in_the_default_bundle(web: Web) -> None:
    assert list(await cells_of(web)) == [0]
    _, document = await web.ask("GET", "/v1/bundles")
    (default,) = document["bundles"]
    assert (default["name"], default["cells"], default["health"]) == ("default", [0], "good")


async def test_tablets_are_spread_over_the_cells_of_their_bundle(web: Web) -> None:
    await with_cells(web, 3)
    assert homes(web) == (1, 2, 3, 1, 2, 3)
    for partition in range(6):
        assert await write(web, "t", partition, f"v{partition}") == 0
    assert [await values(web, "t", partition) for partition in range(6)] == [[f"v{index}"] for index in range(6)]
    await create(web, "u", "default")
    assert homes(web, "u") == ()


async def test_what_is_stored_in_cells_survives_a_restart_of_the_system_cell(web: Web) -> None:
    await with_cells(web, 2)
    for partition in range(6):
        await write(web, "t", partition, f"v{partition}")
    web.node.engine.faults.lose_next()
    generation = opened(web).cell.generation
    await web.ask("POST", "/v1/bundles", {"name": "other"})
    await until(lambda: opened(web).cell.generation == generation + 1)
    assert homes(web) == (1, 2, 1, 2, 1, 2)
    assert [await values(web, "t", partition) for partition in range(6)] == [[f"v{index}"] for index in range(6)]
    assert {cell["health"] for cell in (await cells_of(web)).values()} == {"good"}


async def test_a_lost_cell_is_back_alone_and_the_others_do_not_notice(web: Web) -> None:
    await with_cells(web, 2)
    await create(web, "u", "default")
    before = await cells_of(web)
    engine_of(web, 1).faults.lose_next()
    status, _, _ = await web.refusal(
        "POST", "/v1/topics/t/records", {"records": [{"partition": 0, "value": "lost"}]}
    )
    assert status == 503
    assert await write(web, "t", 1, "kept") == 0
    assert await write(web, "u", 0, "kept") == 0
    async with asyncio.timeout(2):
        while (await cells_of(web))[1]["health"] != "good":  # noqa: ASYNC110
            await asyncio.sleep(0)
    after = await cells_of(web)
    assert after[1]["generation"] == before[1]["generation"] + 1
    assert [after[cell]["generation"] for cell in (0, 2)] == [before[cell]["generation"] for cell in (0, 2)]
    assert await write(web, "t", 0, "again") == 0
    assert await values(web, "t", 0) == ["again"]


async def test_four_cells_and_one_is_lost_on_cue_without_the_others_noticing(serve: Serve) -> None:
    web = await serve(test_door=True)
    await with_cells(web, 3, partitions=3)
    await create(web, "u", "default")
    before = await cells_of(web)
    status, _ = await web.ask("POST", "/v1/test/store", {"fault": "lose_next", "cell": 2})
    assert status == 200
    await web.refusal("POST", "/v1/topics/t/records", {"records": [{"partition": 1, "value": "lost"}]})
    for topic, partition in (("t", 0), ("t", 2), ("u", 0)):
        assert await write(web, topic, partition, "kept") == 0
    async with asyncio.timeout(2):
        while (await cells_of(web))[2]["health"] != "good":  # noqa: ASYNC110
            await asyncio.sleep(0)
    after = await cells_of(web)
    grown = {cell: after[cell]["generation"] - before[cell]["generation"] for cell in after}
    assert grown == {0: 0, 1: 0, 2: 1, 3: 0}
    assert (await web.refusal("POST", "/v1/test/store", {"fault": "clear", "cell": 9}))[0] == 400


async def test_tablets_of_every_cell_are_listed_shown_and_restarted(web: Web) -> None:
    await with_cells(web, 2, partitions=2)
    _, document = await web.ask("GET", "/v1/tablets")
    found = {tablet["cell"]: tablet["id"] for tablet in document["tablets"] if tablet["topic"] == "t"}
    assert set(found) == {"1", "2"}
    await write(web, "t", 1, "x")
    _, shown = await web.ask("GET", f"/v1/tablets/{found['2']}")
    assert (shown["cell"], shown["partitions"]) == ("2", [1])
    status, restarted = await web.ask("POST", f"/v1/tablets/{found['2']}/restart", {})
    assert (status, restarted["generation"]) == (200, shown["generation"] + 1)
    _, blobs = await web.ask("GET", f"/v1/blobs?tablet={found['2']}")
    assert blobs["tablet"] == found["2"]
    assert await values(web, "t", 1) == ["x"]


async def test_offsets_of_a_group_over_several_cells_are_back_with_their_cell(web: Web) -> None:
    await with_cells(web, 2, partitions=2)
    await create(web, "u", "default")
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        await write(web, topic, partition, "x")
    for topic in ("t", "u"):
        status, _ = await web.ask("POST", "/v1/groups/g/reset", {"topic": topic, "to": "end"})
        assert status == 200
    offsets = opened(web).topics.offsets
    found = offsets.of("g")
    assert sorted(found) == [("t", 0), ("t", 1), ("u", 0)]
    engine_of(web, 2).faults.lose_next()
    await web.refusal("POST", "/v1/topics/t/records", {"records": [{"partition": 1, "value": "lost"}]})
    assert offsets.at("g", ("u", 0)) is not None
    await until(lambda: opened(web).others.health(CellId(2)) == "good")
    kept = {place: state._replace(creator=address_of(state.creator)) for place, state in found.items()}
    assert kept.items() >= {("t", 1): offsets.of("g")["t", 1]}.items()
    assert {place: state.offset for place, state in offsets.of("g").items()} == dict.fromkeys(found, 1)


async def test_deleting_a_topic_frees_its_tablets_in_every_cell(web: Web) -> None:
    await with_cells(web, 2)
    assert (await web.refusal("DELETE", "/v1/cells/1"))[1] == "BUNDLE_REFUSED"
    assert (await web.ask("DELETE", "/v1/topics/t"))[0] == 204
    hosts = dict(opened(web).cells.hosts())
    await until(lambda: not any(hosts[CellId(cell)].cell.tablets() for cell in (1, 2)))
    assert (await web.ask("DELETE", "/v1/cells/1"))[0] == 204
    assert list(await cells_of(web)) == [0, 2]
    assert (await web.ask("POST", "/v1/cells", {"bundle": "b"}))[1]["id"] == 3


async def test_tables_live_in_the_cells_of_their_bundle(web: Web) -> None:
    await with_cells(web, 2)
    schema = [{"name": "a", "type": "int64"}]
    body = {"path": "//t2", "schema": schema, "tablet_count": 2, "bundle": "b"}
    status, table = await web.ask("POST", "/v1/tables", body)
    assert (status, table["bundle"]) == (201, "b")
    _, found = await web.ask("GET", "/v1/tables/t2/tablets")
    assert [(one["cell_id"], one["home_cell_id"]) for one in found["tablets"]] == [("1", "1"), ("2", "2")]
    await web.ask("DELETE", "/v1/topics/t")
    change = {"options": {"clock_cluster_tag": 5}}
    assert "t2 is served" in (await web.refusal("PATCH", "/v1/bundles/b", change))[2]
    assert (await web.ask("POST", "/v1/tables/t2/unmount", {}))[0] == 200
    assert (await web.ask("PATCH", "/v1/bundles/b", change))[0] == 200


async def test_a_bundle_without_a_healthy_cell_refuses_by_name(web: Web) -> None:
    await web.ask("POST", "/v1/bundles", {"name": "empty"})
    body = {"name": "t", "partitions": 1, "config": {"pq.bundle": "empty"}}
    status, code, message = await web.refusal("POST", "/v1/topics", body)
    assert (status, code) == (409, ErrorCode.POLICY_VIOLATION.name)
    assert message.startswith("No healthy tablet cells in bundle 'empty': add one")
    status, code, message = await web.refusal("POST", "/v1/topics", {**body, "config": {"pq.bundle": "epmty"}})
    assert (status, code) == (409, ErrorCode.POLICY_VIOLATION.name)
    assert message.startswith("No healthy tablet cells in bundle 'epmty': there is no such bundle")


async def test_cells_run_where_the_filter_of_their_bundle_says(serve: Serve) -> None:
    web = await serve(node_tags=("ssd",))
    await web.ask("POST", "/v1/bundles", {"name": "b", "node_tag_filter": "hdd"})
    _, cell = await web.ask("POST", "/v1/cells", {"bundle": "b"})
    assert (cell["health"], cell["generation"]) == ("offline", None)
    _, bundle = await web.ask("PATCH", "/v1/bundles/b", {"node_tag_filter": "hdd | ssd"})
    assert bundle["health"] == "good"
    await create(web, "t", "b")
    await write(web, "t", 0, "x")
    assert (await scrape(web))["cell_open"] == {("0",): 1, ("1",): 1}
    await web.ask("PATCH", "/v1/bundles/b", {"node_tag_filter": "!ssd"})
    assert (await cells_of(web))[1]["health"] == "offline"
    values_now = await scrape(web)
    assert values_now["cell_open"] == {("0",): 1, ("1",): 0}
    assert set(values_now["commits_total"]) == {("0",)}
    status, _, _ = await web.refusal("POST", "/v1/topics/t/records", {"records": [{"partition": 0, "value": "no"}]})
    assert status == 503
    await web.ask("PATCH", "/v1/bundles/b", {"node_tag_filter": ""})
    assert await values(web, "t", 0) == ["x"]


async def test_options_of_a_bundle_change_while_nothing_of_it_is_served(web: Web) -> None:
    await with_cells(web, 1)
    generation = (await cells_of(web))[1]["generation"]
    change = {"options": {"clock_cluster_tag": 5}}
    status, _, message = await web.refusal("PATCH", "/v1/bundles/b", change)
    assert status == 409
    assert "unmounted: t is served" in message
    _, bundle = await web.ask("PATCH", "/v1/bundles/b", {"options": {"dynamic_memory_pool_weight": 3}})
    assert bundle["options"]["dynamic_memory_pool_weight"] == 3
    await web.ask("DELETE", "/v1/topics/t")
    _, bundle = await web.ask("PATCH", "/v1/bundles/b", change)
    assert bundle["options"]["clock_cluster_tag"] == 5
    assert (await cells_of(web))[1]["generation"] == generation + 1


@pytest.mark.parametrize(
    ("method", "path", "body", "refused"),
    [
        ("POST", "/v1/cells", {"bundle": "no"}, (404, "NO_BUNDLE")),
        ("DELETE", "/v1/cells/0", None, (409, "CELL_REFUSED")),
        ("DELETE", "/v1/cells/7", None, (404, "NO_CELL")),
        ("DELETE", "/v1/bundles/default", None, (409, "BUNDLE_REFUSED")),
        ("DELETE", "/v1/bundles/no", None, (404, "NO_BUNDLE")),
        ("POST", "/v1/bundles", {"name": "default"}, (409, "BUNDLE_REFUSED")),
        ("POST", "/v1/bundles", {"name": "x", "node_tag_filter": "a&&b"}, (400, "INVALID_BUNDLE")),
        ("POST", "/v1/bundles", {"name": "x", "options": {"no": 1}}, (400, "INVALID_BUNDLE")),
        ("PATCH", "/v1/bundles/default", {"options": {"peer_count": 2}}, (409, "BUNDLE_REFUSED")),
    ],
)
async def test_what_cannot_be_is_refused(
    web: Web, method: str, path: str, body: Any, refused: tuple[int, str]
) -> None:
    assert (await web.refusal(method, path, body))[:2] == refused


async def test_a_node_has_so_many_cells_and_a_bundle_with_cells_stays(serve: Serve) -> None:
    web = await serve(cells_max=1)
    await web.ask("POST", "/v1/bundles", {"name": "b"})
    await web.ask("POST", "/v1/cells", {"bundle": "b"})
    assert "pqbroker.cells.max" in (await web.refusal("POST", "/v1/cells", {"bundle": "b"}))[2]
    assert "has 1 cells" in (await web.refusal("DELETE", "/v1/bundles/b"))[2]


async def test_a_new_cell_is_opening_and_not_lost_until_it_is_open(web: Web) -> None:
    engine_of(web, 1).faults.hold()
    making = asyncio.create_task(web.ask("POST", "/v1/cells", {}))
    async with asyncio.timeout(20):
        while 1 not in (found := await cells_of(web)):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert (found[1]["health"], found[1]["cause"]) == ("opening", "")
    engine_of(web, 1).faults.release()
    assert (await making)[1]["health"] == "good"


async def test_a_cell_that_is_not_open_is_in_no_backup_which_says_so(web: Web) -> None:
    await with_cells(web, 1)
    await web.ask("PATCH", "/v1/bundles/b", {"node_tag_filter": "elsewhere"})
    status, code, message = await web.refusal("POST", "/v1/backups", {"name": "x"})
    assert (status, code) == (409, "BACKUP_REFUSED")
    assert "cell 1 is offline" in message
