"""The OpenAPI document is one, says what is served, and the answers are what it says."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from pqbroker.broker.web import replies
from pqbroker.broker.web.openapi import openapi
from pqbroker.broker.web.routing.routes import Route
from pqbroker.broker.web.served import ROUTES
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.web.conftest import Web

SCHEMA = [{"name": "a", "type": "int64"}]


async def test_the_document_is_served_and_valid(web: Web) -> None:
    status, document = await web.ask("GET", "/v1/openapi.json")
    assert status == 200
    validate(document)
    assert document == openapi(ROUTES)
    served = {(route.method.lower(), route.path) for route in ROUTES}
    assert {(method, path) for path, methods in document["paths"].items() for method in methods} == served


async def test_the_document_is_written_once(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes milliseconds, which an unknown client could have of every core again and again."""
    asked = await web.ask("GET", "/v1/openapi.json")
    monkeypatch.setattr(replies, "_encode", None)
    assert await web.ask("GET", "/v1/openapi.json") == asked


async def test_answers_are_as_documented(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(test_door=True)
    await web.node.create_topic("t")
    await web.node.create_topic("kept", cleanup_policy="compact")
    client = await web.node.connect()
    made_id = await client.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000))
    assert made_id.error_code == 0
    await web.node.produce("t", b"a")
    for name, mount in (("mounted", True), ("unmounted", False), ("queued", True)):
        made = {"path": f"//{name}", "schema": SCHEMA, "tablet_count": 2, "mount": mount}
        assert (await web.ask("POST", "/v1/tables", made))[0] == 201
    key = {"name": "k", "type": "int64", "sort_order": "ascending"}
    assert (await web.ask("POST", "/v1/tables", {"path": "//sorted", "schema": [key, *SCHEMA]}))[0] == 201
    bodies: dict[tuple[str, str], Any] = {
        ("POST", "/v1/topics"): {"name": "u"},
        ("POST", "/v1/topics/{name}/partitions"): {"count": 2},
        ("PATCH", "/v1/topics/{name}/configs"): {"configs": {"retention.ms": 1}},
        ("POST", "/v1/tablets/{tablet}/restart"): {},
        ("POST", "/v1/groups/{name}/reset"): {"topic": "t", "to": "beginning"},
        ("PATCH", "/v1/settings"): {"settings": {"log.retention.ms": 1}},
        ("POST", "/v1/topics/{name}/partitions/{partition}/records"): {"offset": 10, "records": [{"value": "v"}]},
        ("POST", "/v1/groups/{name}/commits"): {
            "topic": "t", "partition": 0, "offset": 1, "session": {"name": "s", "generation": 1, "step": 0},
        },
        ("POST", "/v1/groups/{name}/recreate"): {"topic": "t", "partition": 0},
        ("POST", "/v1/test/store"): {"fault": "clear"},
        ("POST", "/v1/test/faults"): {"act": "disconnect", "api": "ListGroups"},
        ("POST", "/v1/test/clock"): {"advance_ms": 1},
        ("POST", "/v1/tablets/{tablet}/commands"): {"commands": [{"read_range": {}}]},
        ("POST", "/v1/tablets/{tablet}/channels/{channel}"): {"group": 0},
        ("POST", "/v1/topics/{name}/records"): {"records": [{"value": "v"}]},
        ("PUT", "/v1/tree/{path}"): 5,
        ("POST", "/v1/tables"): {"path": "//c", "schema": SCHEMA},
        ("PATCH", "/v1/tables/{name}"): {"attributes": {}},
        ("POST", "/v1/tables/{name}/rows"): {"rows": [{"a": 1}]},
        ("POST", "/v1/tables/{name}/staged-rows"): {"rows": [{"a": 1}], "session": "s", "sequence": 0},
        ("POST", "/v1/tables/{name}/staged-rows/commit"): {"pieces": [], "session": "s", "sequence": 0},
        ("POST", "/v1/topics/{name}/clean"): {"dry_run": True},
        ("POST", "/v1/cells/{cell}/move"): {"node": 1},
        ("PATCH", "/v1/features"): {"levels": {"transaction.version": 2}},
        ("PATCH", "/v1/queues/{name}"): {"auto_trim_config": {}},
        ("POST", "/v1/queues/{name}/consumers"): {"consumer": "c", "vital": True},
        ("POST", "/v1/queues/{name}/advance"): {"consumer": "c", "tablet_index": 0, "new_offset": 0},
        ("POST", "/v1/queues/{name}/producer-sessions"): {"producer": "p", "session": "s"},
        ("DELETE", "/v1/queues/{name}/producer-sessions"): {"producer": "p", "session": "s"},
        ("POST", "/v1/queues/{name}/push"): {
            "producer": "p", "session": "s", "epoch": 0, "sequence_number": 1, "rows": [{"a": 1}],
        },
        ("POST", "/v1/tables/{name}/lookup"): {"keys": [{"k": 1}]},
        ("DELETE", "/v1/tables/{name}/rows"): {"keys": [{"k": 1}]},
        ("POST", "/v1/tables/{name}/trim"): {"tablet_index": 0, "trimmed_row_count": 1},
        ("POST", "/v1/tables/{name}/alter"): {"schema": SCHEMA},
        ("POST", "/v1/tables/{name}/reshard"): {"tablet_count": 2},
        ("POST", "/v1/tables/{name}/remount"): {},
        ("POST", "/v1/tables/{name}/freeze"): {"first_tablet_index": 1},
        ("POST", "/v1/tables/{name}/mount"): {"last_tablet_index": 0},
        ("POST", "/v1/tables/{name}/unfreeze"): {},
        ("POST", "/v1/tables/{name}/unmount"): {},
        ("POST", "/v1/materializations"): {"topic": "t", "table": "sorted", "columns": {"k": "$row_index"}},
        ("POST", "/v1/materializations/{name}/pause"): {},
        ("POST", "/v1/materializations/{name}/resume"): {"from_start": True},
        ("POST", "/v1/transactions"): {"timeout_ms": 1000},
        ("POST", "/v1/transactions/{transaction}/ping"): {},
        ("POST", "/v1/transactions/{transaction}/commit"): {"writes": []},
        ("POST", "/v1/transactions/{transaction}/abort"): {"force": False},
        ("POST", "/v1/bundles"): {"name": "c"},
        ("PATCH", "/v1/bundles/{name}"): {"node_tag_filter": "!a"},
        ("POST", "/v1/cells"): {"bundle": "c"},
        ("POST", "/v1/sql"): {"query": "SELECT count(*) FROM t", "explain": True},
        ("POST", "/v1/groups/{name}/offsets"): {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]},
    }
    _, topic = await web.ask("GET", "/v1/topics/t")
    tablet = topic["partitions"][0]["tablet"]
    path = "//mounted/@max_data_ttl"
    names: dict[str, Any] = {"name": "t", "partition": 0, "channel": 2, "fault": 1, "cell": 1, "consumer": "c"}
    names |= {"tablet": tablet, "path": path}
    assert (await web.ask("POST", "/v1/bundles", {"name": "t"}))[0] == 201
    await web.ask("POST", "/v1/groups/t/offsets", bodies["POST", "/v1/groups/{name}/offsets"])
    resolving = "/v1/transactions/{transaction}/resolve"  # tests/broker/services/commits/test_resolving.py
    of_users = ("/v1/users/{name}", "/v1/tokens", "/v1/tokens/{name}")  # test_users.py
    # test_acls.py, test_quotas.py, tests/cli/test_backup.py, test_events.py, test_search.py, test_rolling_restart.py
    search = "/v1/topics/{name}/search"
    elsewhere = ("/v1/acls", "/v1/quotas", "/v1/backups", "/v1/restart", "/v1/events", search, *of_users, resolving)
    there = [route for route in ROUTES if route.path not in elsewhere]
    for route in sorted(there, key=_deepest_deleted_first):
        is_of_sorted = route.path.endswith(("/lookup", "/inside", "/compaction"))
        is_of_sorted |= route.method == "DELETE" and route.path.endswith("/rows")
        is_unmounted = route.path.endswith(("/alter", "/reshard"))
        is_of_sorted |= route.path.startswith("/v1/materializations")
        table = {"name": "sorted" if is_of_sorted else "unmounted" if is_unmounted else "mounted"}
        of_tables = route.path.startswith(("/v1/tables", "/v1/materializations"))
        if "{transaction}" in route.path:
            names["transaction"] = (await web.ask("POST", "/v1/transactions", {}))[1]["transaction"]
        of_kept = {"name": "kept"} if "/clean" in route.path else {}
        of_kept |= {"name": "queued"} if route.path.startswith("/v1/queues") else {}
        path = route.path.format_map(names | of_kept | ({**table, "tablet": 0} if of_tables else {}))
        if required := {parameter.name: names[parameter.name] for parameter in route.parameters if parameter.required}:
            path += f"?{urlencode(required)}"
        status, answer = await web.ask(route.method, path, bodies.get((route.method, route.path)))
        assert status == route.status, (route.method, path, answer)
        if route.answer is None:
            assert answer is None
        else:
            Draft202012Validator(dict(route.answer)).validate(answer)


def test_what_is_shown_names_its_cell() -> None:
    """Tests alone reach faults and the clock; a follower's events name it one by one; the document is every cell's, and
    so are bundles, users and a restart of all nodes."""
    others = (
        "acls/needs", "tables", "test/", "events", "openapi.json", "blobs", "cells", "bundles", "tree/",
        "materializations", "transactions", "queues", "users", "tokens",
        "moves", "rights", "restart",
    )  # fmt: skip
    shown = [each for each in ROUTES if each.method == "GET" and not each.path.removeprefix("/v1/").startswith(others)]
    assert len(shown) > 10
    for route in shown:
        assert route.answer is not None
        assert '"cell"' in json.dumps(route.answer), route.path


def test_examples_are_as_documented() -> None:
    shown = [(route.answer, route.example) for route in ROUTES if route.example is not None]
    shown += [(route.body, route.body_example) for route in ROUTES if route.body_example is not None]
    shown += [route.streams for route in ROUTES if route.streams is not None]
    assert shown
    for schema, example in shown:
        assert schema is not None
        Draft202012Validator(dict(schema)).validate(example)
    for parameter in (one for route in ROUTES for one in route.parameters if one.example is not None):
        Draft202012Validator(dict(parameter.schema)).validate(parameter.example)


def _deepest_deleted_first(route: Route) -> tuple[int, str]:
    """In the order of their paths; what is deleted goes last, the parts before the whole."""
    return 1000 - len(route.path) if route.method == "DELETE" else 0, route.path
