"""Mounting and its kin over HTTP, and what Kafka clients see of it (D.2, K.5)."""

from typing import Any

import pytest

from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import until
from tests.broker.kafka.handlers.test_delete_records import delete
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import NAME, create, insert, reopened, select, tablets

STATES = ("mounted", "frozen", "unmounted")
COMMANDS: dict[str, tuple[str, Any]] = {
    "mount": ("mount", {}), "mount frozen": ("mount", {"freeze": True}), "unmount": ("unmount", {}),
    "freeze": ("freeze", {}), "unfreeze": ("unfreeze", {}),
}  # fmt: skip
MATRIX: dict[str, tuple[str | None, ...]] = {
    "mounted": ("mounted", None, "unmounted", "frozen", "mounted"),
    "frozen": (None, "frozen", "unmounted", "frozen", "mounted"),
    "unmounted": ("mounted", "frozen", "unmounted", None, None),
}


async def do(web: Web, verb: str, body: Any = None, query: str = "") -> tuple[int, Any]:
    return await web.ask("POST", f"/v1/tables/{NAME}/{verb}{query}", body or {})


async def bring(web: Web, state: str) -> None:
    """A mounted table into a state."""
    for verb in {"mounted": (), "frozen": ("freeze",), "unmounted": ("unmount",)}[state]:
        assert (await do(web, verb))[0] == 200


@pytest.mark.spec("D.2")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("number", range(len(COMMANDS)))
async def test_every_command_does_what_the_matrix_says(web: Web, state: str, number: int) -> None:
    await create(web)
    await insert(web, {"id": 1})
    await bring(web, state)
    verb, body = list(COMMANDS.values())[number]
    end = MATRIX[state][number]
    if end is None:
        refused = await web.refusal("POST", f"/v1/tables/{NAME}/{verb}", body)
        assert refused[:2] == (409, "WRONG_STATE")
        assert state in refused[2]
        end = state
    else:
        status, table = await do(web, verb, body)
        assert (status, table["state"]) == (200, end)
    for _ in range(2):
        assert await tablets(web, "state", "total_row_count") == [(end, 1)]
        await reopened(web)


async def test_an_answer_at_once_shows_the_state_on_its_way(web: Web) -> None:
    await create(web)
    status, table = await do(web, "freeze", query="?wait=false")
    assert (status, table["state"]) == (202, "transient")
    assert (await do(web, "freeze"))[1]["state"] == "frozen"


@pytest.mark.spec("D.2")
@pytest.mark.parametrize(
    ("before", "verb", "on_the_way", "end"),
    [
        ("mounted", "freeze", "freezing", "frozen"),
        ("mounted", "unmount", "unmounting", "unmounted"),
        ("frozen", "unfreeze", "unfreezing", "mounted"),
        ("unmounted", "mount", "mounting", "mounted"),
    ],
)
async def test_states_on_their_way_are_seen_and_not_stored(
    web: Web, before: str, verb: str, on_the_way: str, end: str
) -> None:
    await create(web)
    await insert(web, {"id": 1})
    await bring(web, before)
    web.node.engine.faults.hold()
    assert (await do(web, verb, query="?wait=false"))[0] == 202
    assert await tablets(web, "state") == [on_the_way]
    assert (await web.refusal("POST", f"/v1/tables/{NAME}/rows", {"rows": [{"id": 2}]}))[1] == "NO_MOUNTED_TABLETS"
    web.node.engine.faults.release()
    assert (await do(web, verb))[1]["state"] == end


async def test_one_command_waits_for_another_one_under_way(web: Web) -> None:
    await create(web, tablet_count=2)
    await do(web, "unmount", {"last_tablet_index": 0}, "?wait=false")
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    assert (await do(web, "unmount"))[1]["state"] == "unmounted"
    assert topic.moving == {}


async def test_an_unmount_overtakes_a_freeze(web: Web) -> None:
    await create(web)
    await insert(web, {"id": 1})
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    web.node.engine.faults.hold()
    await do(web, "freeze", query="?wait=false")
    frozen = topic.moving[0].end
    await do(web, "unmount", {"force": True}, "?wait=false")
    assert await tablets(web, "state") == ["unmounting"]
    web.node.engine.faults.release()
    await frozen
    assert (await do(web, "unmount"))[1]["state"] == "unmounted"
    assert await tablets(web, "state") == ["unmounted"]


@pytest.mark.spec("D.2")
async def test_freezing_and_unmounting_flush_all_rows(web: Web) -> None:
    await create(web, tablet_count=3)
    for index in range(3):
        await insert(web, {"id": 1, "$tablet_index": index})
    assert await tablets(web, "flushed_row_count") == [0, 0, 0]
    await do(web, "freeze", {"last_tablet_index": 0})
    await do(web, "unmount", {"first_tablet_index": 1, "last_tablet_index": 1})
    await do(web, "unmount", {"first_tablet_index": 2, "force": True})
    assert await tablets(web, "state", "flushed_row_count") == [("frozen", 1), ("unmounted", 1), ("unmounted", 0)]
    assert (await web.ask("GET", f"/v1/tables/{NAME}"))[1]["state"] == "mixed"
    await do(web, "mount", {"first_tablet_index": 1})
    assert [len(await select(web, tablet_index=index)) for index in range(3)] == [1, 1, 1]


@pytest.mark.spec("D.2")
async def test_a_flush_that_the_store_refuses_leaves_the_table_mounted(web: Web) -> None:
    await create(web)
    await insert(web, {"id": 1})
    web.node.engine.faults.refuse_next()
    assert (await do(web, "freeze"))[0] == 503
    assert await tablets(web, "state") == ["mounted"]
    await insert(web, {"id": 2})
    assert len(await select(web)) == 2


async def test_what_refuses_a_change_that_nobody_waits_for_is_in_the_log(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    await create(web)
    await insert(web, {"id": 1})
    web.node.engine.faults.refuse_next()
    assert (await do(web, "freeze", query="?wait=false"))[0] == 202
    await until(lambda: "tablets of shop.orders stay mounted" in caplog.text)
    assert await tablets(web, "state") == ["mounted"]


@pytest.mark.spec("G.5", "K.5")
async def test_a_frozen_table_is_read_and_not_written(web: Web) -> None:
    await create(web)
    await insert(web, {"id": 1})
    await do(web, "freeze")
    assert len(await select(web)) == 1
    assert (await web.refusal("POST", f"/v1/tables/{NAME}/rows", {"rows": [{"id": 2}]}))[1] == "NO_MOUNTED_TABLETS"
    produced = await web.node.produce(NAME, b'{"id":1}')
    assert produced.error_code == ErrorCode.POLICY_VIOLATION
    assert "frozen" in (produced.error_message or "")
    assert (await fetch(web)).error_code == ErrorCode.NONE
    trim = {"tablet_index": 0, "trimmed_row_count": 1}
    assert (await web.refusal("POST", f"/v1/tables/{NAME}/trim", trim))[:2] == (409, "WRONG_STATE")
    _, topic = await web.ask("GET", f"/v1/topics/{NAME}")
    assert topic["partitions"][0]["writes_refused_by"] == "frozen"


@pytest.mark.spec("G.5", "K.5")
async def test_an_unmounted_table_is_neither_read_nor_written(web: Web) -> None:
    await create(web)
    await insert(web, {"id": 1})
    await do(web, "unmount")
    assert (await web.refusal("GET", f"/v1/tables/{NAME}/rows"))[:2] == (409, "WRONG_STATE")
    assert (await web.refusal("POST", f"/v1/tables/{NAME}/rows", {"rows": [{"id": 2}]}))[1] == "NO_MOUNTED_TABLETS"
    named = {"rows": [{"id": 2, "$tablet_index": 0}]}
    assert (await web.refusal("POST", f"/v1/tables/{NAME}/rows", named))[1] == "WRONG_STATE"
    assert (await web.node.produce(NAME, b'{"id":1}')).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await fetch(web)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    client = await web.node.connect()
    metadata = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=NAME)]))
    (partition,) = metadata.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert await tablets(web, "cell_id") == [None]
    await do(web, "mount")
    assert (await fetch(web)).error_code == ErrorCode.NONE
    assert (await web.node.produce(NAME, b'{"id":2}')).error_code == ErrorCode.NONE
    assert len(await select(web)) == 2


@pytest.mark.parametrize(
    ("state", "code"), [("frozen", ErrorCode.POLICY_VIOLATION), ("unmounted", ErrorCode.LEADER_NOT_AVAILABLE)]
)
async def test_a_trim_of_a_closed_tablet_is_a_wrong_state_over_http_and_has_kafkas_codes(
    web: Web, state: str, code: ErrorCode
) -> None:
    await create(web)
    await insert(web, {"id": 1})
    await bring(web, state)
    trim = {"tablet_index": 0, "trimmed_row_count": 1}
    status, refused, told = await web.refusal("POST", f"/v1/tables/{NAME}/trim", trim)
    assert (status, refused) == (409, "WRONG_STATE")
    assert state in told
    assert await delete(await web.node.connect(), (0, 1), topic=NAME) == [(code, -1)]


async def test_a_fetch_that_waits_ends_when_its_tablet_is_unmounted(web: Web) -> None:
    await create(web)
    client = await web.node.connect()
    client.send(fetch_request(wait_ms=60_000), 11)
    await do(web, "unmount")
    answer = await client.receive()
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_table_can_be_created_unmounted(web: Web) -> None:
    assert (await create(web, mount=False))["state"] == "unmounted"
    assert (await web.node.produce(NAME, b'{"id":1}')).error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_rows_of_a_frozen_table_do_not_go_by_age(web: Web) -> None:
    attributes = {"min_data_versions": 0, "max_data_versions": 0, "min_data_ttl": 1}
    await create(web, attributes=attributes)
    await insert(web, {"id": 1})
    await do(web, "freeze")
    web.node.clock.now_ms += 10
    topics = web.node.server.node.cell.current.topics
    await topics.retain(nobody_knows)
    assert len(await select(web)) == 1
    await do(web, "unfreeze")
    await topics.retain(nobody_knows)
    assert await select(web) == []


async def test_a_topic_that_is_no_table_has_no_mount_state(web: Web) -> None:
    await web.node.create_topic("plain")
    refused = await web.refusal("POST", "/v1/tables/plain/unmount", {})
    assert refused[:2] == (404, "NO_TABLE")
    assert "plain" in refused[2]


def fetch_request(wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=NAME, partitions=[partition])
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic])


async def fetch(web: Web) -> Any:
    client = await web.node.connect()
    answer = await client.ask(fetch_request(), 11)
    return answer.responses[0].partitions[0]
