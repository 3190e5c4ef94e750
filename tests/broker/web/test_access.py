"""Every path under /v1 asks the same place as the Kafka APIs whether the caller may do what it does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation, AclResource, DirectCaller, Principal
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.access.rules import EVERY_USER, AclPattern, AclPermission, AclRule
from pqbroker.broker.services.sorted_tables.making import NewSortedTable, create_sorted
from pqbroker.broker.web.endpoints import start_http
from pqbroker.broker.web.route_needs import needs_of
from pqbroker.broker.web.routing.routes import Route
from pqbroker.broker.web.served import ROUTES
from pqbroker.conf.addresses import Address
from pqbroker.protocol.errors import ErrorCode
from tests.broker.conftest import Node

OPEN = {"/v1/openapi.json", "/v1/rights"}
FILTERED = {
    "/v1/groups", "/v1/materializations", "/v1/queues", "/v1/tables", "/v1/tokens", "/v1/topics",
    "/v1/transactional-ids",
    "/v1/transactions",
}  # fmt: skip
"""Lists, which leave out what the caller may not see."""
OWN = "/v1/transactions"
"""Each is its user's own, and needs the rights on what it reads and writes alone: the test below."""
NAMES = {
    "{cell}": "1", "{path}": "t/@a", "{name}": "t", "{tablet}": "1", "{partition}": "0", "{channel}": "0",
    "{fault}": "1", "{transaction}": "0" * 32, "{consumer}": "c",
}  # fmt: skip
BODIES: dict[str, Any] = {
    "/v1/cells/{cell}/move": {"node": 1},
    "/v1/acls": {"acls": [{"kind": "topic", "name": "t", "principal": "User:ann", "operation": "read"}]},
    "/v1/bundles": {"name": "b"},
    "/v1/topics": {"name": "u"},
    "/v1/groups/{name}/reset": {"topic": "t", "to": "end"},
    "/v1/quotas": {"entity": {"user": "ann"}, "quotas": {"producer_byte_rate": 1}},
    "/v1/settings": {"settings": {"log.retention.ms": 1}},
    "/v1/topics/{name}/partitions": {"count": 2},
    "/v1/topics/{name}/configs": {"configs": {}},
    "/v1/topics/{name}/records": {"records": [{"value": "v"}]},
    "/v1/topics/{name}/partitions/{partition}/records": {"offset": 0, "records": [{"value": "v"}]},
    "/v1/groups/{name}/offsets": {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]},
    "/v1/groups/{name}/commits": {
        "topic": "t", "partition": 0, "offset": 0, "session": {"name": "s", "generation": 1, "step": 1},
    },
    "/v1/groups/{name}/recreate": {"topic": "t", "partition": 0},
    "/v1/tables": {"path": "//u", "schema": []},
    "/v1/tables/{name}": {"attributes": {}},
    "/v1/tables/{name}/rows": {"rows": [{}]},
    "DELETE /v1/tables/{name}/rows": {"keys": [{}]},
    "/v1/tables/{name}/lookup": {"keys": [{}]},
    "/v1/tables/{name}/staged-rows": {"rows": [{}]},
    "/v1/tables/{name}/staged-rows/commit": {"pieces": [], "session": "s", "sequence": 0},
    "/v1/tables/{name}/trim": {"tablet_index": 0, "trimmed_row_count": 0},
    "/v1/tables/{name}/alter": {"schema": []},
    "/v1/tables/{name}/reshard": {"tablet_count": 1},
    "/v1/materializations": {"topic": "t", "table": "t"},
    "/v1/features": {"levels": {}},
    "/v1/queues/{name}": {"auto_trim_config": {}},
    "/v1/queues/{name}/consumers": {"consumer": "c", "vital": True},
    "/v1/queues/{name}/advance": {"consumer": "c", "tablet_index": 0, "new_offset": 0},
    "/v1/queues/{name}/producer-sessions": {"producer": "p", "session": "s"},
    "/v1/queues/{name}/push": {"producer": "p", "session": "s", "epoch": 0, "rows": [{}]},
    "/v1/sql": {"query": "SELECT key FROM t"},
    "/v1/transactions/{transaction}/commit": {"writes": []},
    "/v1/transactions/{transaction}/resolve": {"outcome": "abort"},
    "/v1/tablets/{tablet}/commands": {"commands": []},
    "/v1/backups": {"name": "b"},
    "/v1/test/store": {"fault": "clear"},
    "/v1/test/faults": {"act": "pause", "hold_ms": 1},
    "/v1/test/clock": {"advance_ms": 1},
}  # fmt: skip


class Nothing:
    """Allows nothing to anybody."""

    revision = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return False

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return False


COLUMNS = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "note", "type": "utf8"}]


@pytest.fixture
async def guarded(node: Node) -> AsyncIterator[str]:
    """Return the URL of a node with the topic `t` and the sorted table `s`, which allows nothing."""
    await node.create_topic("t")
    await create_sorted(DirectCaller(node.server.node), NewSortedTable("//s", COLUMNS))
    access = replace(node.server.node, access=Nothing())
    close, address = await start_http(access, Address("127.0.0.1", 0))
    yield f"http://{address}"
    await close()


def path_of(route: Route, names: Mapping[str, str] = NAMES) -> str:
    path = route.path
    for name, value in names.items():
        path = path.replace(name, value)
    return path + "?" + "&".join(f"{one.name}=1" for one in route.parameters if one.required)


@pytest.mark.parametrize("route", [each for each in ROUTES if each.path not in OPEN], ids=lambda each: each.summary)
async def test_who_may_do_nothing_sees_and_changes_nothing(guarded: str, route: Route) -> None:
    body = None if route.body is None else BODIES.get(f"{route.method} {route.path}", BODIES.get(route.path, {}))
    async with (
        aiohttp.ClientSession() as session,
        session.request(route.method, guarded + path_of(route), json=body) as answer,
    ):
        document = await answer.json()
    if (route.method, route.path) in {("GET", path) for path in FILTERED}:
        name = route.path.removeprefix("/v1/").replace("-", "_")
        assert document.pop("total", 0) == 0
        assert document | {"cell": "0"} == {"cell": "0", name: [], "next": None}
        return
    if route.path.startswith(OWN) and route.cluster is None:
        assert answer.status == (201 if route.path == OWN else 404)
        return
    assert answer.status == 403, document
    assert document["error"]["code"] in {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
        ErrorCode.GROUP_AUTHORIZATION_FAILED.name,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.name,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name,
    }
    assert document["error"]["cure"]


async def test_who_may_do_nothing_commits_no_rows_and_aborts_no_transaction_of_others(guarded: str) -> None:
    async with aiohttp.ClientSession() as session:
        for table in ("s", "t", "unknown"):
            async with session.post(f"{guarded}{OWN}", json={}) as answer:
                path = f"{guarded}{OWN}/{(await answer.json())['transaction']}"
            for verb, body in (
                ("abort", {"force": True}), ("commit", {"writes": [{"table": table, "rows": [{"id": 1}]}]}),
            ):  # fmt: skip
                async with session.post(f"{path}/{verb}", json=body) as answer:
                    assert answer.status == 403
                    assert (await answer.json())["error"]["code"].endswith("_AUTHORIZATION_FAILED")


def allowing(route: Route) -> RuleAccess:
    """Return access rules that allow everybody what the route's line in the table of rights says."""
    access = RuleAccess((), allows_unruled=False, decisions_max=lambda: 1000)
    for need in needs_of(route):
        name = CLUSTER.name if need.kind is AclKind.CLUSTER else "*"
        rule = AclRule(need.kind, AclPattern.LITERAL, name, EVERY_USER, "*", need.operation, AclPermission.ALLOW)
        access.follow(rule, {})
    return access


@pytest.mark.parametrize("route", [each for each in ROUTES if not each.streams], ids=lambda each: each.summary)
async def test_who_has_the_rights_of_its_line_is_not_refused(node: Node, route: Route) -> None:
    await node.create_topic("t")
    await create_sorted(DirectCaller(node.server.node), NewSortedTable("//s", COLUMNS))
    close, address = await start_http(replace(node.server.node, access=allowing(route)), Address("127.0.0.1", 0))
    body = None if route.body is None else BODIES.get(f"{route.method} {route.path}", BODIES.get(route.path, {}))
    refused = []
    async with aiohttp.ClientSession() as session:
        for name in ("t", "s"):
            path = path_of(route, NAMES | {"{name}": name, "{path}": f"{name}/@max_data_ttl"})
            async with session.request(route.method, f"http://{address}{path}", json=body) as answer:
                refused += [await answer.text()] if answer.status == 403 else []
    await close()
    assert [text for text in refused if "NO_TEST_BROKER" not in text] == []


OF_ITS_KAFKA_SIDE = {
    OWN: ({"transactional_id": "x"}, (404, "TRANSACTIONAL_ID_NOT_FOUND")),
    f"{OWN}/{{transaction}}/commit": (
        {"writes": [], "offsets": [{"group": "g", "topic": "t", "partition": 0, "offset": 0}]}, (200, None),
    ),
}  # fmt: skip
"""Requests of transactions by path, with the answer for who has the rights of their lines."""


@pytest.mark.parametrize("path", OF_ITS_KAFKA_SIDE)
async def test_the_kafka_side_of_a_transaction_needs_the_rights_of_its_line(node: Node, path: str) -> None:
    await node.create_topic("t")
    (route,) = (each for each in ROUTES if (each.method, each.path) == ("POST", path))
    body, allowed = OF_ITS_KAFKA_SIDE[path]
    answers = []
    for access in (Nothing(), allowing(route)):
        close, address = await start_http(replace(node.server.node, access=access), Address("127.0.0.1", 0))
        async with aiohttp.ClientSession(f"http://{address}") as session:
            async with session.post(OWN, json={}) as answer:
                name = (await answer.json())["transaction"]
            async with session.post(path.format(transaction=name), json=body) as answer:
                answers.append((answer.status, (await answer.json()).get("error", {}).get("code")))
        await close()
    assert answers[0][0] == 403
    assert answers[1] == allowed


OF_TABLES = [
    route
    for route in ROUTES
    if route.path.startswith(("/v1/tables/{name}", "/v1/queues/{name}")) or route.path == "/v1/tree/{path}"
]


@pytest.mark.parametrize("route", OF_TABLES, ids=lambda each: each.summary)
async def test_of_a_sorted_table_nothing_is_seen_or_changed(guarded: str, route: Route) -> None:
    body = None if route.body is None else BODIES.get(f"{route.method} {route.path}", BODIES.get(route.path, {}))
    path = path_of(route, NAMES | {"{path}": "s/@max_data_ttl", "{name}": "s"})
    async with aiohttp.ClientSession() as session, session.request(route.method, guarded + path, json=body) as answer:
        document = await answer.json()
    refusal = (answer.status, document["error"]["code"])
    assert refusal == (403, ErrorCode.TOPIC_AUTHORIZATION_FAILED.name), document


async def test_who_may_not_write_is_not_told_that_a_table_is_sorted(guarded: str) -> None:
    async with aiohttp.ClientSession() as session:
        codes = set()
        for name in ("s", "t", "unknown"):
            path = f"{guarded}/v1/tables/{name}/rows?session=a&sequence=1"
            async with session.post(path, json={"rows": [{"id": 1}]}) as answer:
                codes.add((answer.status, (await answer.json())["error"]["code"]))
    assert codes == {(403, "TOPIC_AUTHORIZATION_FAILED")}


async def test_of_a_sorted_table_no_name_is_seen(guarded: str) -> None:
    async with aiohttp.ClientSession() as session:
        for path, names in (("/v1/tree/?children=true", ["sys"]), ("/v1/tree/sys/tablets?children=true", [])):
            async with session.get(guarded + path) as answer:
                assert (answer.status, await answer.json()) == (200, names)


async def test_metrics_need_a_right_on_the_cluster_and_health_none(guarded: str) -> None:
    async with aiohttp.ClientSession() as session:
        for path, status in (("/metrics", 403), ("/health", 200), ("/ready", 200)):
            async with session.get(guarded + path) as answer:
                assert answer.status == status


async def test_the_document_of_the_paths_is_open_to_all(guarded: str) -> None:
    async with aiohttp.ClientSession() as session:
        for path in OPEN:
            async with session.get(guarded + path) as answer:
                assert answer.status == 200


async def test_a_local_file_is_read_and_listed_by_a_rule_for_the_topic_of_its_name(
    start: Callable[..., Awaitable[Node]], tmp_path: Path
) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("n\n1\n")
    access = RuleAccess((), allows_unruled=False, decisions_max=lambda: 1000)
    pattern = (AclKind.TOPIC, AclPattern.LITERAL, "files.a.csv", EVERY_USER, "*", AclOperation.READ)
    access.follow(AclRule(*pattern, AclPermission.ALLOW), {})
    node = (await start(sql_files_directory=str(tmp_path))).server.node
    close, address = await start_http(replace(node, access=access), Address("127.0.0.1", 0))
    found = {}
    async with aiohttp.ClientSession() as session:
        for query in ("SELECT n FROM files.a.csv", "SELECT n FROM files.b.csv", "DESCRIBE files.b.csv", "SHOW TABLES"):
            async with session.post(f"http://{address}/v1/sql", json={"query": query}) as answer:
                found[query] = (answer.status, await answer.text())
    await close()
    assert found["SELECT n FROM files.a.csv"] == (200, '{"n":1}\n')
    assert found["SELECT n FROM files.b.csv"][0] == found["DESCRIBE files.b.csv"][0] == 403
    assert found["SHOW TABLES"] == (200, '{"name":"files.a.csv","kind":"file"}\n')
