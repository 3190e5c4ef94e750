"""Transactions over HTTP: started, shown, kept open, read at, committed once, aborted; wrong requests."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from pqbroker.broker.ground.access import ANONYMOUS, AclKind, AclOperation, AclResource, DirectCaller, Principal
from pqbroker.broker.services.commits import open_transactions
from pqbroker.broker.services.commits.commits import EXPIRY_S
from pqbroker.broker.services.transactions import transactions
from pqbroker.broker.services.transactions.transactions import TIMEOUT_MS_DEFAULT
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.tables.refusals import TableError
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_tables import PATH, create, insert, look_up, reopen, row

pytestmark = pytest.mark.spec("E.12")
ALL = "/v1/transactions"
TABLE = "shop.stock"
EVENTS = "/v1/tables/shop.events"
UNKNOWN = "0" * 32


async def begin(web: Web, **given: Any) -> Any:
    status, started = await web.ask("POST", ALL, given)
    assert status == 201, started
    return started


async def commit(web: Web, started: Any, *writes: dict[str, Any]) -> Any:
    status, answer = await web.ask("POST", f"{ALL}/{started['transaction']}/commit", {"writes": list(writes)})
    assert status == 200, answer
    return answer


async def refused(web: Web, started: Any, *writes: dict[str, Any]) -> tuple[int, str, str]:
    return await web.refusal("POST", f"{ALL}/{started['transaction']}/commit", {"writes": list(writes)})


async def state_of(web: Web, started: Any) -> tuple[str, str | None]:
    _, found = await web.ask("GET", f"{ALL}/{started['transaction']}")
    return found["state"], found["cause"]


async def create_events(web: Web, **more: Any) -> None:
    schema = [{"name": "id", "type": "int64"}, {"name": "$timestamp", "type": "uint64"}]
    status, made = await web.ask("POST", "/v1/tables", {"path": "//shop/events", "schema": schema, **more})
    assert status == 201, made


def rows(*some: dict[str, Any], table: str = TABLE, **more: Any) -> dict[str, Any]:
    return {"table": table, "rows": list(some), **more}


async def test_a_transaction_is_started_described_listed_and_aborted(web: Web) -> None:
    started = await begin(web, timeout_ms=5000)
    now_ms = web.node.clock.now_ms
    assert len(bytes.fromhex(started["transaction"])) == 16
    facts = {"state": "open", "principal": "User:ANONYMOUS", "started": now_ms, "timeout_ms": 5000, "cause": None}
    assert started.items() >= {**facts, "expires": now_ms + 5000, "commit_timestamp": None}.items()
    assert started["start_timestamp"] >> 30 == now_ms // 1000
    assert await web.ask("GET", f"{ALL}/{started['transaction']}") == (200, started)
    assert await web.ask("GET", ALL) == (200, {"transactions": [started], "next": None})
    for _ in range(2):
        assert await web.ask("POST", f"{ALL}/{started['transaction']}/abort", {}) == (204, None)
    assert await state_of(web, started) == ("aborted", "its client aborted it")
    assert (await web.ask("GET", f"{ALL}/{started['transaction']}"))[1]["expires"] is None


async def test_transactions_are_listed_the_oldest_first_by_state_and_in_pages(web: Web) -> None:
    some = [await begin(web) for _ in range(5)]
    await web.ask("POST", f"{ALL}/{some[2]['transaction']}/abort", {})
    listed: list[str] = []
    after = ""
    while True:
        _, page = await web.ask("GET", f"{ALL}?limit=2{after}")
        listed += [one["transaction"] for one in page["transactions"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert listed == [one["transaction"] for one in some]
    _, ended = await web.ask("GET", f"{ALL}?state=aborted")
    assert [one["transaction"] for one in ended["transactions"]] == [some[2]["transaction"]]
    status, code, message = await web.refusal("GET", f"{ALL}?state=closed")
    assert (status, code) == (400, "INVALID_REQUEST")
    assert "'closed'; give open, committing, committed, aborted" in message


async def test_a_ping_keeps_a_transaction_open_and_without_one_it_is_aborted(web: Web) -> None:
    started = await begin(web)
    assert started["timeout_ms"] == TIMEOUT_MS_DEFAULT
    path = f"{ALL}/{started['transaction']}"
    web.node.clock.now_ms += TIMEOUT_MS_DEFAULT - 1
    status, pinged = await web.ask("POST", f"{path}/ping", {})
    assert (status, pinged["expires"]) == (200, web.node.clock.now_ms + TIMEOUT_MS_DEFAULT)
    web.node.clock.now_ms += TIMEOUT_MS_DEFAULT
    assert await state_of(web, started) == ("aborted", f"there was no ping for {TIMEOUT_MS_DEFAULT} ms, its timeout")
    refusals: list[tuple[str, dict[str, Any]]] = [("ping", {}), ("commit", {"writes": []})]
    for verb, body in refusals:
        assert (await web.refusal("POST", f"{path}/{verb}", body))[:2] == (409, "TRANSACTION_ENDED")
    assert await web.ask("POST", f"{path}/abort", {}) == (204, None)


async def test_a_silent_client_s_transaction_is_aborted_without_a_request(web: Web) -> None:
    await begin(web, timeout_ms=int(EXPIRY_S * 1000))
    web.node.clock.now_ms += 1000
    commits = web.node.server.node.cell.current.commits
    await until(lambda: commits.open_count == 0)
    assert commits.counters.timed_out == 1


async def test_pings_do_not_keep_a_transaction_open_beyond_its_age(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(transaction_age_ms_max=20_000)
    started = await begin(web)
    web.node.clock.now_ms += 12_000
    _, pinged = await web.ask("POST", f"{ALL}/{started['transaction']}/ping", {})
    assert pinged["expires"] == started["started"] + 20_000
    web.node.clock.now_ms += 8_000
    assert "pqbroker.transaction.age.ms.max" in str(await state_of(web, started))


async def test_an_ended_transaction_is_kept_for_its_time_and_forgotten(web: Web) -> None:
    started = await begin(web)
    await web.ask("POST", f"{ALL}/{started['transaction']}/abort", {})
    web.node.clock.now_ms += 599_999
    assert (await state_of(web, started))[0] == "aborted"
    web.node.clock.now_ms += 1
    assert (await web.refusal("GET", f"{ALL}/{started['transaction']}"))[:2] == (404, "NO_TRANSACTION")


async def test_so_many_ended_transactions_are_kept(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "KEPT_MAX", 2)
    some = [await begin(web) for _ in range(3)]
    for one in some:
        await web.ask("POST", f"{ALL}/{one['transaction']}/abort", {})
    _, listed = await web.ask("GET", ALL)
    assert [one["transaction"] for one in listed["transactions"]] == [one["transaction"] for one in some[1:]]
    assert (await web.refusal("GET", f"{ALL}/{some[0]['transaction']}"))[:2] == (404, "NO_TRANSACTION")


@pytest.mark.parametrize("timeout_ms", [0, -1, 60_001])
async def test_a_timeout_out_of_bounds_is_refused(web: Web, timeout_ms: int) -> None:
    status, code, message = await web.refusal("POST", ALL, {"timeout_ms": timeout_ms})
    assert (status, code) == (400, "INVALID_TIMEOUT")
    assert f"timeout_ms is {timeout_ms}; 1 to 60000 are allowed" in message


async def test_more_transactions_than_a_client_may_have_are_refused(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(transactions_max=8)
    some = [await begin(web) for _ in range(7)]
    status, code, message = await web.refusal("POST", ALL, {})
    assert (status, code) == (503, "TOO_MANY_TRANSACTIONS")
    assert "7 transactions are open, 7 of this client; the limit is 8" in message
    caller = DirectCaller(web.node.server.node)
    await transactions.start(caller, "192.0.2.9")  # the last eighth is for other addresses
    with pytest.raises(TableError) as full:
        await transactions.start(caller, "192.0.2.10")
    assert full.value.code == "TOO_MANY_TRANSACTIONS"
    for one in some[:2]:
        await web.ask("POST", f"{ALL}/{one['transaction']}/abort", {})
    await begin(web)


@pytest.mark.parametrize("name", ["x", "g" * 32, UNKNOWN.upper() + "0", "0" * 31, "A" * 32, UNKNOWN])
async def test_a_name_of_no_transaction_is_refused(web: Web, name: str) -> None:
    await create(web)
    calls: list[tuple[str, str, Any]] = [
        ("GET", f"{ALL}/{name}", None), ("POST", f"{ALL}/{name}/ping", {}), ("POST", f"{ALL}/{name}/abort", {}),
        ("POST", f"{ALL}/{name}/abort", {"force": True}), ("POST", f"{ALL}/{name}/commit", {"writes": []}),
        ("POST", f"{PATH}/lookup", {"keys": [row("a", 1)], "transaction": name}),
        ("POST", "/v1/sql", {"query": f"SELECT count FROM {TABLE}", "transaction": name}),
    ]  # fmt: skip
    for method, path, body in calls:
        status, code, message = await web.refusal(method, path, body)
        assert (status, code) == (404, "NO_TRANSACTION"), path
        assert name in message


async def test_lookups_and_queries_read_at_the_start_and_keep_it_open(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1, count=1))
    started = await begin(web)
    await insert(web, row("a", 1, count=2), row("a", 2, count=5))
    web.node.clock.now_ms += TIMEOUT_MS_DEFAULT - 1
    at = {"transaction": started["transaction"]}
    assert await look_up(web, row("a", 1), row("a", 2), columns=["count"], **at) == [{"count": 1}, None]
    web.node.clock.now_ms += TIMEOUT_MS_DEFAULT - 1
    status, found = await web.ask("POST", f"{PATH}/lookup", {"prefix": {"shop": "a"}, "columns": ["count"], **at})
    assert (status, found["rows"]) == (200, [{"count": 1}])
    web.node.clock.now_ms += TIMEOUT_MS_DEFAULT - 1
    assert await web.ask("POST", "/v1/sql", {"query": f"SELECT count FROM {TABLE}", **at}) == (200, {"count": 1})
    assert (await state_of(web, started))[0] == "open"


async def test_versions_that_a_transaction_may_read_are_kept_until_it_ends(web: Web) -> None:
    reads = web.node.server.node.cell.current.sorted_tables.share.reads
    started = await begin(web)
    assert reads.bound(1 << 63) == started["start_timestamp"]
    await web.ask("POST", f"{ALL}/{started['transaction']}/abort", {})
    assert reads.bound(1 << 63) == 1 << 63


async def test_a_transaction_together_with_a_timestamp_is_refused(web: Web) -> None:
    await create(web)
    started = await begin(web)
    at = {"transaction": started["transaction"], "timestamp": started["start_timestamp"]}
    for path, body in (
        (f"{PATH}/lookup", {"keys": [row("a", 1)]}), ("/v1/sql", {"query": f"SELECT count FROM {TABLE}"}),
    ):  # fmt: skip
        status, code, message = await web.refusal("POST", path, {**body, **at})
        assert (status, code) == (400, "INVALID_REQUEST")
        assert "timestamp and transaction are given" in message


async def test_a_query_of_topics_alone_is_refused_in_a_transaction(web: Web) -> None:
    await web.node.create_topic("t")
    at = {"transaction": (await begin(web))["transaction"]}
    assert (await web.refusal("POST", "/v1/sql", {"query": "SELECT key FROM t", **at}))[:2] == (400, "INVALID_QUERY")


async def test_a_reading_transaction_ends_with_a_commit_of_nothing(web: Web) -> None:
    started = await begin(web)
    first = await commit(web, started)
    assert (first["row_count"], first["duplicate"]) == (0, False)
    assert await commit(web, started) == {**first, "duplicate": True}
    _, found = await web.ask("GET", f"{ALL}/{started['transaction']}")
    assert (found["state"], found["commit_timestamp"]) == ("committed", first["timestamp"])
    assert (await web.refusal("POST", f"{ALL}/{started['transaction']}/abort", {}))[:2] == (409, "TRANSACTION_ENDED")


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        ({}, "body.writes[1] has no field 'table'"),
        ({"table": TABLE}, "body.writes[1] has none of rows and delete"),
        ({"table": TABLE, "rows": [], "delete": []}, "body.writes[1] has both of rows and delete"),
        ({"table": TABLE, "update": True}, "body.writes[1] has none of rows and delete"),
        ({"table": TABLE, "delete": [], "update": True}, "body.writes[1] has update and delete"),
        ({"table": TABLE, "rows": [1]}, "body.writes[1].rows[0] is integer; give object"),
        ({"table": TABLE, "keys": []}, "body.writes[1] has an unknown field 'keys'"),
        ({"table": "//a//b", "rows": []}, "path is '//a//b'"),
    ],
)
async def test_a_write_that_is_none_is_refused_by_its_place_and_ends_nothing(
    web: Web, write: dict[str, Any], expected: str
) -> None:
    started = await begin(web)
    status, _, message = await refused(web, started, rows(), write)
    assert status == 400
    assert expected in message
    assert await state_of(web, started) == ("open", None)


async def test_a_commit_that_a_tablet_s_state_refuses_aborts_and_says_so_each_time(web: Web) -> None:
    await create(web)
    await web.ask("POST", f"/v1/tables/{TABLE}/freeze", {})
    started = await begin(web)
    first = await refused(web, started, rows({"id": 1}))
    await web.ask("POST", f"/v1/tables/{TABLE}/unfreeze", {})
    assert first[:2] == (409, "WRONG_STATE")
    assert first[2].startswith("tablet 0 of //shop/stock is frozen; the transaction is aborted")
    assert await refused(web, started, rows({"id": 1})) == first


async def test_a_body_of_more_objects_than_the_limit_is_refused_unread(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(http_body_objects_max=1000)
    started = await begin(web)
    assert (await refused(web, started, rows(*[{}] * 1000)))[:2] == (413, "BODY_TOO_LARGE")
    assert await state_of(web, started) == ("open", None)


class _Own:
    """Allows what concerns tables, and nothing on the cluster."""

    revision = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return resource.name != "kafka-cluster"

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return False


async def test_a_transaction_is_its_user_s_own_and_an_operator_aborts_it(web: Web) -> None:
    await create(web)
    started = await begin(web)
    name, node = started["transaction"], web.node.server.node
    stranger = DirectCaller(replace(node, access=_Own()), Principal("User", "eve"))
    operator = DirectCaller(node, Principal("User", "root"))
    calls: list[Callable[[], Any]] = [
        lambda: transactions.ping(stranger, name), lambda: transactions.abort(stranger, name),
        lambda: transactions.read_timestamp(stranger, name), lambda: transactions.describe(stranger, name),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TableError) as unknown:
            call()
        assert unknown.value.code == "NO_TRANSACTION"
    with pytest.raises(TableError) as unknown:
        await transactions.commit(stranger, name, [])
    assert unknown.value.code == "NO_TRANSACTION"
    assert transactions.every_transaction(stranger) == []
    with pytest.raises(KafkaError) as forbidden:
        transactions.abort_any(stranger, name)
    assert forbidden.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert transactions.describe(operator, name).client.principal == ANONYMOUS
    with pytest.raises(TableError):
        transactions.abort(operator, name)
    transactions.abort_any(operator, name)
    assert await state_of(web, started) == ("aborted", "an operator aborted it")


async def test_anybody_s_transaction_is_aborted_by_force(web: Web) -> None:
    started = await begin(web)
    assert await web.ask("POST", f"{ALL}/{started['transaction']}/abort", {"force": True}) == (204, None)
    assert await state_of(web, started) == ("aborted", "an operator aborted it")


async def test_counters_do_not_fall_when_the_cell_is_opened_again(web: Web) -> None:
    await create(web)
    await commit(web, await begin(web))
    await begin(web)
    await reopen(web)
    scraped = await web.text("/metrics")
    assert "\npqbroker_transactions_started_total 2.0\n" in scraped
    assert "\npqbroker_transactions_committed_total 1.0\n" in scraped
    assert "\npqbroker_transactions_open 0.0\n" in scraped
