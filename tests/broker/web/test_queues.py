"""The queue API of E.13 over HTTP: consumers, pulls, advances, producers' sessions, auto trim."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from pqbroker.broker.ground.access import ANONYMOUS, Principal
from pqbroker.broker.services.queues.consumers import Advance
from pqbroker.broker.services.queues.consumers import advance as service_advance
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_groups import commit, join
from tests.broker.web.test_inserting import row
from tests.broker.web.test_tables import NAME, create, insert, reopened, select

pytestmark = pytest.mark.spec("E.13")

QUEUE = f"/v1/queues/{NAME}"
SESSION = {"producer": "loader", "session": "host-1"}


async def done(web: Web, method: str, path: str = "", body: Any = None, status: int = 200) -> Any:
    found, answer = await web.ask(method, f"{QUEUE}{path}", body)
    assert found == status, answer
    return answer


async def number(web: Web, method: str, path: str, body: Any) -> int:
    """Return YT's number of a refusal."""
    _, answer = await web.ask(method, f"{QUEUE}{path}", body)
    found: int = answer["error"]["number"]
    return found


async def register(web: Web, consumer: str, *, vital: bool = False) -> Any:
    return await done(web, "POST", "/consumers", {"consumer": consumer, "vital": vital})


async def advance(web: Web, consumer: str, new: int, old: int | None = None, tablet: int = 0) -> Any:
    body = {"consumer": consumer, "tablet_index": tablet, "new_offset": new}
    return await done(web, "POST", "/advance", body if old is None else {**body, "old_offset": old})


async def take(web: Web, **more: Any) -> Any:
    return await done(web, "POST", "/producer-sessions", {**SESSION, **more})


async def push(web: Web, *rows: dict[str, Any], epoch: int = 0, **more: Any) -> Any:
    return await done(web, "POST", "/push", {**SESSION, "epoch": epoch, "rows": [*rows], **more})


async def test_a_registered_consumer_pulls_advances_and_is_seen_by_kafka(web: Web) -> None:
    await create(web)
    await insert(web, *(row(index) for index in range(5)))
    await register(web, "billing", vital=True)
    pulled = await done(web, "GET", "/rows?consumer=billing&max_row_count=2")
    assert [one["id"] for one in pulled["rows"]] == [0, 1]
    assert (pulled["offset"], pulled["next_offset"]) == (0, 2)
    assert await advance(web, "billing", 2, old=0) == {
        "consumer": "billing", "tablet_index": 0, "old_offset": None, "new_offset": 2,
    }  # fmt: skip
    assert [one["id"] for one in (await done(web, "GET", "/rows?consumer=billing"))["rows"]] == [2, 3, 4]
    client = await web.node.connect()
    topics = [OffsetFetchRequestTopic(name=NAME, partition_indexes=[0])]
    fetched = await client.ask(OffsetFetchRequest(group_id="billing", topics=topics), 5)
    assert fetched.topics[0].partitions[0].committed_offset == 2
    (place,) = (await done(web, "GET", "/consumers/billing"))["tablets"]
    assert (place["offset"], place["disposition"], place["unread_row_count"]) == (2, "pending_consumption", 3)


async def test_offsets_that_a_kafka_client_commits_are_the_consumers(web: Web) -> None:
    await create(web)
    await insert(web, *(row(index) for index in range(5)))
    await register(web, "billing")
    await commit(web, "billing", 4, topic=NAME)
    assert [one["id"] for one in (await done(web, "GET", "/rows?consumer=billing"))["rows"]] == [4]
    assert (await advance(web, "billing", 5, old=4))["old_offset"] == 4


async def test_an_advance_from_another_place_is_a_conflict(web: Web) -> None:
    await create(web)
    await insert(web, row(1), row(2))
    await advance(web, "billing", 1, old=0)
    wrong = {"consumer": "billing", "tablet_index": 0, "old_offset": 0, "new_offset": 2}
    status, code, message = await web.refusal("POST", f"{QUEUE}/advance", wrong)
    assert (status, code) == (409, "CONSUMER_OFFSET_CONFLICT")
    assert "stands at row 1" in message
    assert await number(web, "POST", "/advance", wrong) == 3100
    assert (await done(web, "GET", "/consumers/billing"))["tablets"][0]["offset"] == 1
    await advance(web, "billing", 0)


async def test_of_two_advances_from_one_place_one_is_a_conflict(web: Web) -> None:
    await create(web)
    await insert(web, *(row(index) for index in range(9)))
    wanted = [{"consumer": "b", "tablet_index": 0, "old_offset": 0, "new_offset": new} for new in range(1, 9)]
    answers = await asyncio.gather(*(web.ask("POST", f"{QUEUE}/advance", body) for body in wanted))
    assert sorted(status for status, _ in answers) == [200, *[409] * 7]


@dataclass
class Reader:
    """A caller of the services, without a door."""

    node: Any
    principal: Principal = ANONYMOUS
    holder: str = ""
    host: str = ""


async def test_an_advance_waits_for_the_commits_before_it_and_sees_them(web: Web) -> None:
    await create(web)
    await insert(web, *(row(index) for index in range(9)))
    reader = Reader(web.node.server.node)
    wanted = [Advance("b", 0, 0, new) for new in (3, 4)]
    outcomes = await asyncio.gather(*(service_advance(reader, NAME, each) for each in wanted), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == [
        "Advanced(before=None, after=3)",
        "consumer b stands at row 3 of tablet 0, and old_offset is 0",
    ]


@pytest.mark.parametrize("old_offset", [None, 0])
async def test_an_advance_is_refused_while_members_hold_the_group(
    serve: Callable[..., Awaitable[Web]], old_offset: int | None
) -> None:
    web = await serve(group_initial_rebalance_delay_ms=0)
    await create(web)
    await insert(web, row(1))
    await join(await web.node.connect(), b"")
    body = {"consumer": "g", "tablet_index": 0, "old_offset": old_offset, "new_offset": 1}
    status, code, message = await web.refusal("POST", f"{QUEUE}/advance", body)
    assert (status, code) == (409, "NON_EMPTY_GROUP")
    assert "has members" in message


async def test_only_registered_consumers_pull_as_such(web: Web) -> None:
    await create(web)
    assert (await web.refusal("GET", f"{QUEUE}/rows?consumer=billing"))[:2] == (404, "NO_CONSUMER")
    await register(web, "billing")
    await done(web, "GET", "/rows?consumer=billing")
    await done(web, "DELETE", "/consumers/billing", status=204)
    assert (await web.refusal("GET", f"{QUEUE}/rows?consumer=billing"))[:2] == (404, "NO_CONSUMER")
    assert (await web.refusal("DELETE", f"{QUEUE}/consumers/billing"))[:2] == (404, "NO_CONSUMER")


async def test_vital_consumers_are_important_groups_and_registrations_survive_a_restart(web: Web) -> None:
    await create(web)
    await register(web, "b", vital=True)
    await register(web, "a")
    await register(web, "c", vital=True)
    assert (await register(web, "c"))["consumers"] == [
        {"consumer": "a", "vital": False}, {"consumer": "b", "vital": True}, {"consumer": "c", "vital": False},
    ]  # fmt: skip
    configs = (await web.ask("GET", f"/v1/topics/{NAME}/configs"))[1]["configs"]
    shown = {one["name"]: one["value"] for one in configs}
    assert (shown["pq.important.groups"], shown["pq.registered.groups"]) == ("b", "a,c")
    await reopened(web)
    assert len((await done(web, "GET"))["consumers"]) == 3
    assert [one["name"] for one in (await web.ask("GET", "/v1/queues?consumer=a"))[1]["queues"]] == [NAME]
    assert (await web.ask("GET", "/v1/queues?consumer=d"))[1]["queues"] == []


@pytest.mark.parametrize("name", ["", "a,b", " a", "a\nb", "x" * 40_000])
async def test_a_name_that_no_list_of_groups_holds_is_refused(web: Web, name: str) -> None:
    await create(web)
    body = {"consumer": name, "vital": True}
    assert (await web.refusal("POST", f"{QUEUE}/consumers", body))[:2] == (400, "INVALID_CONSUMER")


async def test_a_queue_has_as_many_consumers_as_its_limit(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(queue_consumers_max=2)
    await create(web)
    await register(web, "a", vital=True)
    await register(web, "b")
    await register(web, "a")
    refused = await web.refusal("POST", f"{QUEUE}/consumers", {"consumer": "c", "vital": False})
    assert refused[:2] == (409, "TOO_MANY_CONSUMERS")


async def test_a_pull_is_bounded_by_weight_but_for_one_row(web: Web) -> None:
    await create(web)
    await insert(web, *(row(index) for index in range(4)))
    pulled = await done(web, "GET", "/rows?max_data_weight=1&offset=1")
    assert ([one["id"] for one in pulled["rows"]], pulled["next_offset"]) == ([1], 2)
    assert (await done(web, "GET", "/rows?offset=4"))["rows"] == []


async def test_a_consumer_below_the_trimmed_rows_has_expired_and_one_behind_the_end_is_ahead(web: Web) -> None:
    await create(web)
    await insert(web, *(row(index) for index in range(4)))
    await web.ask("POST", f"/v1/tables/{NAME}/trim", {"tablet_index": 0, "trimmed_row_count": 2})
    seen = []
    for offset in (1, 2, 4, 5):
        await advance(web, "c", offset)
        seen.append((await done(web, "GET", "/consumers/c"))["tablets"][0]["disposition"])
    assert seen == ["expired", "pending_consumption", "up_to_date", "ahead"]
    assert [one["id"] for one in (await done(web, "GET", "/rows?offset=0"))["rows"]] == [2, 3]


async def test_a_session_begins_at_epoch_0_and_each_owner_fences_the_one_before(web: Web) -> None:
    await create(web)
    taken = await take(web, user_meta={"file": "a"})
    assert (taken["epoch"], taken["sequence_number"], taken["user_meta"]) == (0, -1, {"file": "a"})
    await push(web, row(1), row(2), sequence_number=0)
    taken = await take(web)
    assert (taken["epoch"], taken["sequence_number"], taken["user_meta"]) == (1, 1, {"file": "a"})
    zombie = {**SESSION, "epoch": 0, "rows": [row(3)], "sequence_number": 2}
    assert (await web.refusal("POST", f"{QUEUE}/push", zombie))[:2] == (409, "ZOMBIE_EPOCH")
    assert await number(web, "POST", "/push", zombie) == 3102
    assert await number(web, "POST", "/push", {**zombie, "epoch": 2}) == 3101
    await push(web, row(3), epoch=1, sequence_number=2)
    assert [one["id"] for one in await select(web)] == [1, 2, 3]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_rows_pushed_before_are_left_out(web: Web, is_restarted: bool) -> None:
    await create(web, tablet_count=2)
    await take(web)
    numbered = [{**row(index), "$sequence_number": 10 * index, "$tablet_index": index % 2} for index in range(4)]
    first = await push(web, *numbered[:3])
    assert (first["last_sequence_number"], first["skipped_row_count"]) == (20, 0)
    if is_restarted:
        await reopened(web)
    again = await push(web, *numbered, user_meta=7)
    assert (again["last_sequence_number"], again["skipped_row_count"]) == (30, 3)
    assert again["tablets"] == [{"tablet_index": 1, "first_row_index": 1, "row_count": 1}]
    assert (await push(web, *numbered))["skipped_row_count"] == 4
    assert (await take(web))["user_meta"] == 7


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ([row(1)], {}),
        ([{**row(1), "$sequence_number": 1}], {"sequence_number": 1}),
        ([{**row(1), "$sequence_number": 1}, {**row(1), "$sequence_number": 1}], {}),
        ([{**row(1), "$sequence_number": -1}], {}),
        ([{**row(1), "$sequence_number": True}], {}),
        ([{**row(1), "$sequence_number": 1 << 63}], {}),
        ([row(1), row(2)], {"sequence_number": (1 << 63) - 1}),
    ],
)
async def test_wrong_numbers_of_rows_are_refused(web: Web, rows: list[dict[str, Any]], more: dict[str, Any]) -> None:
    await create(web)
    await take(web)
    assert await number(web, "POST", "/push", {**SESSION, "epoch": 0, "rows": rows, **more}) == 3103
    assert await select(web) == []


async def test_sessions_are_listed_and_forgotten(web: Web) -> None:
    await create(web, tablet_count=2)
    await take(web)
    await push(web, {**row(1), "$tablet_index": 1}, sequence_number=5)
    await done(web, "POST", "/producer-sessions", {"producer": "a", "session": "z"})
    listed = await done(web, "GET", "/producer-sessions?limit=1")
    assert [one["session"] for one in listed["sessions"]] == ["z"]
    behind = listed["next"]
    path = f"/producer-sessions?after_producer={behind['producer']}&after_session={behind['session']}"
    (found,) = (await done(web, "GET", path))["sessions"]
    assert (found["producer"], found["sequence_number"]) == ("loader", 5)
    await done(web, "DELETE", "/producer-sessions", SESSION, status=204)
    await reopened(web)
    assert [one["session"] for one in (await done(web, "GET", "/producer-sessions"))["sessions"]] == ["z"]
    body = {**SESSION, "epoch": 0, "rows": [row(1)], "sequence_number": 6}
    assert (await web.refusal("POST", f"{QUEUE}/push", body))[:2] == (404, "NO_SESSION")
    assert (await take(web))["sequence_number"] == -1


async def test_a_session_keeps_its_epoch_when_tablets_are_glued(web: Web) -> None:
    await create(web, tablet_count=2)
    await take(web)
    await push(web, {**row(1), "$tablet_index": 1}, sequence_number=5)
    for _ in range(3):
        await take(web)
    await web.ask("POST", f"/v1/tables/{NAME}/unmount", {})
    await web.ask("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 1})
    await reopened(web)
    await web.ask("POST", f"/v1/tables/{NAME}/mount", {})
    taken = await take(web)
    assert (taken["epoch"], taken["sequence_number"]) == (4, 5)


@pytest.mark.parametrize("document", ["x" * 10, {"a": [1, 2, 3]}])
async def test_a_sessions_document_is_bounded(serve: Callable[..., Awaitable[Web]], document: Any) -> None:
    web = await serve(queue_meta_bytes_max=8)
    await create(web)
    body = {**SESSION, "user_meta": document}
    assert (await web.refusal("POST", f"{QUEUE}/producer-sessions", body))[:2] == (400, "INVALID_SESSION")
    await take(web, user_meta="short")


async def trimmed(web: Web, rows: int) -> None:
    """Wait until a tablet begins at a row."""
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    await until(lambda: topic.partitions[0].start_offset == rows)


async def test_auto_trim_follows_the_slowest_vital_consumer(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(queue_trim_interval_ms=10)
    await create(web)
    await insert(web, *(row(index) for index in range(9)))
    await done(web, "PATCH", "", {"auto_trim_config": {"enable": True}})
    await register(web, "slow", vital=True)
    await register(web, "fast", vital=True)
    await register(web, "other")
    await advance(web, "fast", 7)
    await advance(web, "slow", 3)
    await trimmed(web, 3)
    await advance(web, "slow", 8)
    await trimmed(web, 7)
    assert [one["id"] for one in await select(web)] == [7, 8]


async def test_an_auto_trim_is_shown_and_checked(web: Web) -> None:
    await create(web)
    assert (await done(web, "GET"))["auto_trim_config"] == {
        "enable": False, "retained_rows": None, "retained_lifetime_duration": None,
    }  # fmt: skip
    config = {"enable": True, "retained_rows": 10, "retained_lifetime_duration": 3000}
    assert (await done(web, "PATCH", "", {"auto_trim_config": config}))["auto_trim_config"] == config
    for wrong in ({"enable": 1}, {"retained_rows": -1}, {"retained_lifetime_duration": 1500}, {"retain": 1}):
        refused = await web.refusal("PATCH", QUEUE, {"auto_trim_config": wrong})
        assert refused[:2] == (400, "INVALID_AUTO_TRIM")
    assert (await done(web, "PATCH", "", {"auto_trim_config": {}}))["auto_trim_config"]["enable"] is False


async def test_a_sorted_table_is_no_queue(web: Web) -> None:
    schema = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "n", "type": "int64"}]
    assert (await web.ask("POST", "/v1/tables", {"path": "//keys", "schema": schema}))[0] == 201
    assert (await web.refusal("GET", "/v1/queues/keys"))[:2] == (409, "SORTED_TABLE")
    assert (await web.refusal("GET", "/v1/queues/none"))[0] == 404


async def test_the_tree_has_consumers_and_sets_auto_trim(web: Web) -> None:
    await create(web)
    await register(web, "billing", vital=True)
    assert await web.ask("GET", "/v1/tree/shop/orders/@registrations") == (
        200, [{"consumer": "billing", "vital": True}],
    )  # fmt: skip
    path = "/v1/tree/shop/orders/@auto_trim_config"
    assert (await web.ask("PUT", path, {"enable": True, "retained_rows": 3}))[0] == 200
    trim = {"enable": True, "retained_rows": 3, "retained_lifetime_duration": None}
    assert await web.ask("GET", path) == (200, trim)
    assert (await web.refusal("PUT", path, {"enable": "yes"}))[:2] == (400, "INVALID_AUTO_TRIM")


async def test_what_queues_do_is_counted(web: Web) -> None:
    await create(web)
    await register(web, "billing", vital=True)
    await take(web)
    await push(web, row(1), sequence_number=0)
    await push(web, row(1), sequence_number=0)
    await web.ask("POST", f"{QUEUE}/push", {**SESSION, "epoch": 1, "rows": [row(1)], "sequence_number": 1})
    await done(web, "GET", "/rows")
    await advance(web, "billing", 1, old=0)
    again = {"consumer": "billing", "tablet_index": 0, "old_offset": 0, "new_offset": 1}
    await web.ask("POST", f"{QUEUE}/advance", again)
    text = await web.text("/metrics")
    for line in (
        'pqbroker_queue_consumers{vital="true"} 1.0', 'pqbroker_queue_consumers{vital="false"} 0.0',
        "pqbroker_queue_auto_trims 0.0", "pqbroker_queue_pulls_total 1.0", "pqbroker_queue_advances_total 1.0",
        "pqbroker_queue_offset_conflicts_total 1.0", "pqbroker_queue_skipped_rows_total 1.0",
        "pqbroker_queue_refused_pushes_total 1.0",
    ):  # fmt: skip
        assert line in text, line


async def test_a_kafka_consumer_continues_where_a_queue_consumer_stands_and_the_other_way_round(web: Web) -> None:
    await create(web)
    await take(web)
    await push(web, *(row(index) for index in range(6)), sequence_number=0)
    await register(web, "billing", vital=True)
    await advance(web, "billing", 2)
    address = web.node.server.kafka_address
    options: dict[str, Any] = {"bootstrap_servers": f"{address.host}:{address.port}", "group_id": "billing"}
    async with AIOKafkaConsumer(NAME, enable_auto_commit=False, **options) as consumer:
        first = await consumer.getone()
        assert first.offset == 2
        await consumer.commit({TopicPartition(NAME, 0): 4})
        body = {"consumer": "billing", "tablet_index": 0, "new_offset": 6}
        assert (await web.refusal("POST", f"{QUEUE}/advance", body))[1] == "NON_EMPTY_GROUP"
    pulled = await done(web, "GET", "/rows?consumer=billing")
    assert [one["id"] for one in pulled["rows"]] == [4, 5]
    await advance(web, "billing", 6, old=4)


async def test_offsets_of_a_registered_consumer_that_advances_do_not_expire(web: Web) -> None:
    await create(web)
    await register(web, "kept")
    for consumer in ("kept", "other"):
        await advance(web, consumer, 1)
    offsets = web.node.server.node.cell.current.topics.offsets
    await offsets.expire(web.node.clock() + 10**12, 1, nobody_knows)
    assert (offsets.has("kept"), offsets.has("other")) == (True, False)


async def test_a_push_writes_to_tablets_of_several_cells_and_survives_a_restart(web: Web) -> None:
    _, cell = await web.ask("POST", "/v1/cells", {"bundle": "default"})
    await create(web, tablet_count=2)
    await web.ask("POST", f"/v1/tables/{NAME}/mount", {"first_tablet_index": 1, "cell_id": cell["id"]})
    taken = await take(web, user_meta={"file": "a"})
    rows = [{**row(index), "$tablet_index": index % 2} for index in range(4)]
    done_now = await push(web, *rows, sequence_number=0)
    assert [one["row_count"] for one in done_now["tablets"]] == [2, 2]
    await reopened(web)
    again = await push(web, *rows, row(9), sequence_number=0)
    assert (again["skipped_row_count"], again["last_sequence_number"]) == (4, 4)
    assert (await take(web))["user_meta"] == {"file": "a"} == taken["user_meta"]


async def test_rows_that_do_not_fit_leave_a_session_as_it_was(web: Web) -> None:
    await create(web)
    await take(web)
    body = {**SESSION, "epoch": 0, "rows": [{"id": "x"}], "sequence_number": 0}
    assert (await web.refusal("POST", f"{QUEUE}/push", body))[:2] == (400, "INVALID_ROW")
    assert (await take(web))["sequence_number"] == -1


async def test_of_pushes_at_once_each_row_is_written_once(web: Web) -> None:
    await create(web, tablet_count=3)
    await take(web)
    body = {**SESSION, "epoch": 0, "rows": [row(1), row(2)], "sequence_number": 0}
    answers = await asyncio.gather(*(web.ask("POST", f"{QUEUE}/push", body) for _ in range(5)))
    assert sorted(answer["skipped_row_count"] for _, answer in answers) == [0, 2, 2, 2, 2]


async def test_an_unmounted_table_takes_no_session_and_no_push(web: Web) -> None:
    await create(web)
    await take(web)
    await web.ask("POST", f"/v1/tables/{NAME}/unmount", {})
    assert (await web.refusal("POST", f"{QUEUE}/producer-sessions", SESSION))[:2] == (409, "NO_MOUNTED_TABLETS")
    body = {**SESSION, "epoch": 0, "rows": [row(1)], "sequence_number": 0}
    assert (await web.refusal("POST", f"{QUEUE}/push", body))[:2] == (409, "NO_MOUNTED_TABLETS")


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({"consumer": ""}, (400, "INVALID_GROUP_ID")),
        ({"consumer": "x" * 40_000}, (400, "INVALID_GROUP_ID")),
        ({"new_offset": -1}, (400, "INVALID_BODY")),
        ({"new_offset": 1 << 62}, (400, "INVALID_BODY")),
        ({"old_offset": True}, (400, "INVALID_BODY")),
        ({"tablet_index": 7}, (404, "NO_TABLET")),
    ],
)
async def test_an_advance_that_makes_no_sense_is_refused(web: Web, body: dict[str, Any], refusal: Any) -> None:
    await create(web)
    usual = {"consumer": "c", "tablet_index": 0, "new_offset": 0}
    assert (await web.refusal("POST", f"{QUEUE}/advance", usual | body))[:2] == refusal


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("tablet_index=7", 404), ("max_row_count=0", 400), ("max_row_count=1000000000", 400),
        ("max_data_weight=0", 400), ("offset=-1", 400), ("view=odd", 400),
    ],
)  # fmt: skip
async def test_a_pull_that_makes_no_sense_is_refused(web: Web, query: str, status: int) -> None:
    await create(web)
    assert (await web.refusal("GET", f"{QUEUE}/rows?{query}"))[0] == status


@pytest.mark.parametrize(
    "session", [{"producer": ""}, {"session": "a\0b"}, {"session": "x" * 254}, {"session": "\ud800"}]
)
async def test_names_that_no_session_has_are_refused(web: Web, session: dict[str, str]) -> None:
    await create(web)
    body = SESSION | session
    assert (await web.refusal("POST", f"{QUEUE}/producer-sessions", body))[:2] == (400, "INVALID_SESSION")


async def test_a_consumer_may_have_a_slash_in_its_name(web: Web) -> None:
    await create(web)
    await register(web, "//team/billing", vital=True)
    assert (await done(web, "GET", "/consumers/%2F%2Fteam%2Fbilling"))["vital"] is True
    await done(web, "DELETE", "/consumers/%2F%2Fteam%2Fbilling", status=204)
    assert (await done(web, "GET"))["consumers"] == []
