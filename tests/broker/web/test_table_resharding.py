"""Resharding over HTTP: rows and offsets of groups stay with their tablet, epochs rise, a crash leaves one state."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.services.tables import readiness
from pqbroker.pq.log.keys import meta_key
from pqbroker.pq.serving.topics import Topics
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.storage.kv.commands import INLINE, Write
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import NAME, create, insert, reopened, select, tablets
from tests.pq.rig import transactional

pytestmark = pytest.mark.spec("E.9")


async def command(web: Web, verb: str, **body: Any) -> Any:
    return await web.ask("POST", f"/v1/tables/{NAME}/{verb}", body)


async def filled(web: Web, count: int) -> None:
    """A table whose tablet N has the rows N0, N1 and so on, N + 1 of them; unmounted."""
    await create(web, tablet_count=count)
    for index in range(count):
        await insert(web, *({"$tablet_index": index, "id": 10 * index + row} for row in range(index + 1)))
    assert (await command(web, "unmount"))[0] == 200


async def ids(web: Web, count: int) -> list[list[int]]:
    return [[row["id"] for row in await select(web, tablet_index=index)] for index in range(count)]


async def epochs(web: Web, count: int) -> list[int]:
    _, found = await web.ask("GET", f"/v1/topics/{NAME}")
    return [partition["leader_epoch"] for partition in found["partitions"]][:count]


async def test_new_tablets_stand_behind_the_range_and_rows_keep_their_numbers(web: Web) -> None:
    await filled(web, 5)
    before = await tablets(web, "tablet_id")
    status, table = await command(
        web, "reshard", first_tablet_index=1, last_tablet_index=3, tablet_count=5, trimmed_row_counts=[10, 20]
    )
    assert (status, table["tablet_count"], table["state"]) == (200, 7, "unmounted")
    after = await tablets(web, "tablet_id")
    assert [*after[:4], after[6]] == before
    for _ in range(2):
        counts = await tablets(web, "trimmed_row_count", "total_row_count")
        assert counts == [(0, 1), (0, 2), (0, 3), (0, 4), (10, 10), (20, 20), (0, 5)]
        await reopened(web)
    assert (await command(web, "mount"))[0] == 200
    assert await ids(web, 7) == [[0], [10, 11], [20, 21, 22], [30, 31, 32, 33], [], [], [40, 41, 42, 43, 44]]
    answer = await insert(web, {"$tablet_index": 5, "id": 1}), await insert(web, {"$tablet_index": 6, "id": 45})
    assert [one["tablets"][0]["first_row_index"] for one in answer] == [20, 5]
    await reopened(web)
    assert (await ids(web, 7))[5:] == [[1], [40, 41, 42, 43, 44, 45]]


async def test_every_leader_epoch_is_greater_than_any_before(web: Web) -> None:
    await filled(web, 3)
    last = (await tablets(web, "tablet_id"))[2]
    for _ in range(3):
        assert (await web.ask("POST", f"/v1/tablets/{last}/restart", {}))[0] == 200
    before = await epochs(web, 3)
    assert max(before) >= 4
    assert (await command(web, "reshard", first_tablet_index=0, last_tablet_index=0, tablet_count=2))[0] == 200
    after = await epochs(web, 4)
    assert min(after) > max(before)
    await reopened(web)
    later = await epochs(web, 4)
    assert all(new > old for new, old in zip(later, after, strict=True))


async def test_tablets_without_rows_are_removed_and_those_behind_them_move_up(web: Web) -> None:
    await filled(web, 4)
    assert (await command(web, "mount"))[0] == 200
    for index in (1, 2):
        assert (await command(web, "trim", tablet_index=index, trimmed_row_count=index + 1))[0] == 200
    assert (await command(web, "unmount"))[0] == 200
    removed = (await tablets(web, "tablet_id"))[1:3]
    status, table = await command(web, "reshard", first_tablet_index=0, last_tablet_index=2, tablet_count=1)
    assert (status, table["tablet_count"]) == (200, 2)
    await web.node.server.node.cell.current.host.reclaimed()
    _, listed = await web.ask("GET", "/v1/tablets?limit=1000")
    assert not {one["id"] for one in listed["tablets"]} & set(removed)
    await reopened(web)
    assert (await command(web, "mount"))[0] == 200
    assert await ids(web, 2) == [[0], [30, 31, 32, 33]]


FACTS = [
    {"name": "id", "type": "int64"}, {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]  # fmt: skip


async def test_rows_of_removed_tablets_follow_those_of_the_last_that_stays(web: Web) -> None:
    await filled(web, 4)
    assert (await command(web, "reshard", first_tablet_index=0, last_tablet_index=2, tablet_count=1))[0] == 200
    for _ in range(2):
        assert await tablets(web, "trimmed_row_count", "total_row_count") == [(0, 6), (0, 4)]
        await reopened(web)
    assert (await command(web, "mount"))[0] == 200
    assert await ids(web, 2) == [[0, 10, 11, 20, 21, 22], [30, 31, 32, 33]]
    assert [row["$row_index"] for row in await select(web)] == list(range(6))
    answer = await insert(web, {"$tablet_index": 0, "id": 6})
    assert answer["tablets"][0]["first_row_index"] == 6
    await reopened(web)
    assert (await ids(web, 2))[0] == [0, 10, 11, 20, 21, 22, 6]
    hosts = dict(web.node.server.node.cell.current.cells.hosts())
    for host in hosts.values():
        await host.reclaimed()
    assert len([one for one in hosts[SYSTEM_CELL].cell.tablets().values() if one.type.name == "PERSQUEUE"]) == 2


async def test_glued_rows_keep_their_commits_and_are_weighed_in_their_new_place(web: Web) -> None:
    await create(web, tablet_count=2, schema=FACTS)
    for number in range(4):
        web.node.clock.now_ms += 1
        await insert(web, {"$tablet_index": number % 2, "id": number})
    before = [await select(web, tablet_index=index) for index in range(2)]
    assert (await command(web, "unmount"))[0] == 200
    assert (await command(web, "reshard", tablet_count=1))[0] == 200
    assert (await command(web, "mount"))[0] == 200
    after = await select(web)
    assert [row["id"] for row in after] == [0, 2, 1, 3]
    assert [row["$timestamp"] for row in after] == [row["$timestamp"] for rows in before for row in rows]
    assert [row["$cumulative_data_weight"] for row in after] == [25, 50, 75, 100]
    await insert(web, {"id": 4})
    assert (await select(web))[-1]["$cumulative_data_weight"] == 125


async def test_the_survivor_keeps_what_was_trimmed_and_others_must_be_trimmed_by_whole_chunks(web: Web) -> None:
    """The chunks of the seed: rows 0 to 9 and 10 to 29."""
    await create(web, tablet_count=2)
    for first, end in ((0, 10), (10, 30)):
        for index in range(2):
            await insert(web, *({"$tablet_index": index, "id": number} for number in range(first, end)))
        for verb in ("freeze", "unfreeze"):
            await command(web, verb)
    assert (await command(web, "trim", tablet_index=0, trimmed_row_count=3))[0] == 200
    assert (await command(web, "trim", tablet_index=1, trimmed_row_count=5))[0] == 200
    assert (await command(web, "unmount"))[0] == 200
    refused = await web.refusal("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 1})
    assert refused[:2] == (409, "CANNOT_GLUE")
    assert "some chunks of tablet 1 are not fully trimmed" in refused[2]
    await command(web, "mount")
    assert (await command(web, "trim", tablet_index=1, trimmed_row_count=10))[0] == 200
    await command(web, "unmount")
    assert (await command(web, "reshard", tablet_count=1))[0] == 200
    await command(web, "mount")
    assert await tablets(web, "trimmed_row_count", "total_row_count") == [(3, 50)]
    rows = await select(web, limit=100)
    assert [row["id"] for row in rows] == [*range(3, 30), *range(10, 30)]
    assert [row["$row_index"] for row in rows] == list(range(3, 50))


async def test_a_batch_of_a_session_is_known_where_its_rows_are_glued(web: Web) -> None:
    await create(web, tablet_count=2)
    body = {"rows": [{"$tablet_index": 1, "id": 1}], "session": "s", "sequence": 7}
    await insert(web, {"$tablet_index": 0, "id": 0})
    assert (await web.ask("POST", f"/v1/tables/{NAME}/rows", body))[1]["duplicate"] is False
    await command(web, "unmount")
    assert (await command(web, "reshard", tablet_count=1))[0] == 200
    await command(web, "mount")
    again = {**body, "rows": [{"$tablet_index": 0, "id": 1}]}
    _, answer = await web.ask("POST", f"/v1/tables/{NAME}/rows", again)
    assert answer["duplicate"] is True
    assert answer["tablets"] == [{"tablet_index": 0, "first_row_index": 1, "row_count": 1}]
    assert await ids(web, 1) == [[0, 1]]


async def test_a_session_is_known_though_its_rows_were_trimmed_before_they_could_be_glued(web: Web) -> None:
    await create(web, tablet_count=2)
    body = {"rows": [{"$tablet_index": 1, "id": 1}], "session": "s", "sequence": 7}
    assert (await web.ask("POST", f"/v1/tables/{NAME}/rows", body))[0] == 200
    await command(web, "trim", tablet_index=1, trimmed_row_count=1)
    await insert(web, {"$tablet_index": 1, "id": 2})
    await command(web, "unmount")
    assert (await command(web, "reshard", tablet_count=1))[0] == 200
    await command(web, "mount")
    assert await ids(web, 1) == [[2]]
    again = {**body, "rows": [{"id": 1}]}
    assert (await web.ask("POST", f"/v1/tables/{NAME}/rows", again))[1]["duplicate"] is True


async def test_a_batch_of_a_producer_is_no_duplicate_of_one_for_the_tablet_that_had_another_number(web: Web) -> None:
    """Its sequences are counted by partition: 1 was another tablet when it sent sequence 0."""
    await create(web, tablet_count=3)
    options = {"producer_id": 7, "producer_epoch": 0}
    for sequence in range(2):
        value = b'{"id":%d}' % (20 + sequence)
        assert (await web.node.produce(NAME, value, partition=2, base_sequence=sequence, **options)).error_code == 0
    assert (await web.node.produce(NAME, b'{"id":10}', partition=1, base_sequence=0, **options)).error_code == 0
    assert (await command(web, "unmount"))[0] == 200
    assert (await command(web, "reshard", first_tablet_index=0, last_tablet_index=1, tablet_count=1))[0] == 200
    assert (await command(web, "mount"))[0] == 200
    answer = await web.node.produce(NAME, b'{"id":11}', partition=1, base_sequence=1, **options)
    assert (answer.error_code, answer.base_offset) == (0, 2)
    assert await ids(web, 2) == [[10], [20, 21, 11]]
    again = await web.node.produce(NAME, b'{"id":11}', partition=1, base_sequence=1, **options)
    assert (again.error_code, again.base_offset) == (0, 2)
    await reopened(web)
    again = await web.node.produce(NAME, b'{"id":11}', partition=1, base_sequence=1, **options)
    assert (again.error_code, again.base_offset) == (0, 2)


async def test_rows_of_a_producer_with_sequences_are_glued_in_any_order(web: Web) -> None:
    await create(web, tablet_count=2)
    for index, sequence in ((0, 0), (0, 1), (1, 0), (1, 1)):
        options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        value = b'{"id":%d}' % (10 * index + sequence)
        answer = await web.node.produce(NAME, value, partition=index, **options)
        assert answer.error_code == 0
    await command(web, "unmount")
    assert (await command(web, "reshard", tablet_count=1))[0] == 200
    await command(web, "mount")
    assert await ids(web, 1) == [[0, 1, 10, 11]]
    assert (await web.node.produce(NAME, b'{"id":2}', producer_id=7, producer_epoch=0, base_sequence=2)).error_code == 0
    assert await ids(web, 1) == [[0, 1, 10, 11, 2]]


async def test_an_open_kafka_transaction_is_named_and_aborted_rows_are_not_glued(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "WAIT_S", 0)
    await create(web, tablet_count=2)
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    server = topic.partitions[1]
    for number in range(3):
        await server.write(*transactional(b'{"id":%d}' % number, producer=(7, 0, number)), [9])
        if number < 2:
            await server.end_transaction(7, 0, 0, is_commit=number == 1)
    await command(web, "unmount")
    status, answer = await command(web, "reshard", tablet_count=1)
    assert (status, answer["error"]["code"]) == (409, "WRONG_STATE")
    since = "since 2023-11-14T22:13:20+00:00"
    told = f"partition 1: producer 7 has an open Kafka transaction from offset 4 on, {since}"
    assert told in answer["error"]["message"]
    await server.end_transaction(7, 0, 0, is_commit=False)
    assert (await command(web, "reshard", tablet_count=1))[0] == 200
    await command(web, "mount")
    assert await ids(web, 1) == [[1]]
    assert await tablets(web, "total_row_count") == [6]
    await reopened(web)
    assert await ids(web, 1) == [[1]]


async def test_a_reshard_waits_for_the_end_of_a_kafka_transaction(web: Web) -> None:
    await create(web, tablet_count=1)
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    await topic.partitions[0].write(*transactional(b'{"id":1}', producer=(7, 0, 0)), [9])
    await command(web, "unmount")
    reshard = asyncio.create_task(command(web, "reshard", tablet_count=2))
    await until(lambda: len(topic.partitions[0].watchers) > 0)
    await topic.partitions[0].end_transaction(7, 0, 0, is_commit=True)
    assert (await reshard)[0] == 200


async def test_rows_of_another_cell_are_glued_too(web: Web) -> None:
    assert (await web.ask("POST", "/v1/cells", {"bundle": "default"}))[0] == 201
    await filled(web, 2)
    assert set(await tablets(web, "home_cell_id")) == {"0", "1"}
    assert (await command(web, "reshard", tablet_count=1))[0] == 200
    await command(web, "mount")
    assert await ids(web, 1) == [[0, 10, 11]]


@contextlib.asynccontextmanager
async def closed_cell(web: Web, *, since_the_start: bool, topic: str = NAME) -> AsyncIterator[None]:
    """Keep cell 1 closed; after a start nothing of its tablets is known."""
    for node_filter in ("elsewhere", ""):
        assert (await web.ask("PATCH", "/v1/bundles/default", {"node_tag_filter": node_filter}))[0] == 200
        if since_the_start:
            await reopened(web, topic)
        if node_filter:
            yield


@pytest.mark.parametrize("since_the_start", [False, True])
@pytest.mark.parametrize("shape", [{"tablet_count": 1}, {"tablet_count": 3}])
async def test_a_table_with_a_tablet_in_a_closed_cell_keeps_its_tablets(
    web: Web, shape: dict[str, int], *, since_the_start: bool
) -> None:
    assert (await web.ask("POST", "/v1/cells", {"bundle": "default"}))[0] == 201
    await filled(web, 2)
    async with closed_cell(web, since_the_start=since_the_start):
        status, code, message = await web.refusal("POST", f"/v1/tables/{NAME}/reshard", shape)
        assert (status, code) == (409, "TABLET_NOT_OPEN")
        assert "tablet 1" in message
        trim = {"tablet_index": 1, "trimmed_row_count": 1}
        await command(web, "mount")
        assert (await web.refusal("POST", f"/v1/tables/{NAME}/trim", trim))[:2] == (503, "NOT_LEADER_OR_FOLLOWER")
    assert await ids(web, 2) == [[0], [10, 11]]


@pytest.mark.parametrize("verb", ["reshard", "alter"])
async def test_a_row_that_a_forced_unmount_leaves_on_its_way_is_waited_for(web: Web, verb: str) -> None:
    assert (await web.ask("POST", "/v1/cells", {"bundle": "default"}))[0] == 201
    await create(web, tablet_count=2)
    faults = web.node.engine.sibling("1", must_exist=False).faults
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    faults.hold()
    inserting = asyncio.create_task(insert(web, {"$tablet_index": 1, "id": 7}))
    await until(lambda: topic.partitions[1].state.is_writing)
    assert (await command(web, "unmount", force=True))[0] == 200
    body = {"tablet_count": 1} if verb == "reshard" else {"dynamic": False}
    status, code, message = await web.refusal("POST", f"/v1/tables/{NAME}/{verb}", body)
    assert (status, code) == (409, "WRONG_STATE")
    assert "a write to tablet 1 of //shop/orders is under way" in message
    faults.release()
    await inserting
    assert (await command(web, "reshard", tablet_count=1))[0] == 200
    await command(web, "mount")
    assert await ids(web, 1) == [[7]]


async def test_a_tablet_that_cannot_be_read_is_not_taken_for_an_empty_one(web: Web) -> None:
    await filled(web, 2)
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    unknown = meta_key(1)
    await topic.tablets[topic.record.tablets[1]].kv.execute([Write(unknown, (b"9",), 1, INLINE)])
    await reopened(web)
    status, code, message = await web.refusal("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 1})
    assert (status, code) == (409, "TABLET_NOT_OPEN")
    assert "tablet 1" in message
    assert len(await tablets(web, "tablet_id")) == 2


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("is_trimmed", [False, True])
async def test_rows_that_come_or_go_before_the_gluing_is_decided_refuse_it(
    web: Web, monkeypatch: pytest.MonkeyPatch, index: int, *, is_trimmed: bool
) -> None:
    await filled(web, 2)
    reshard = Topics.reshard

    async def reshard_later(topics: Topics, name: str, change: Any) -> Any:
        await command(web, "mount")
        if is_trimmed:
            assert (await command(web, "trim", tablet_index=index, trimmed_row_count=index + 1))[0] == 200
        else:
            await insert(web, {"$tablet_index": index, "id": 9})
        await command(web, "unmount")
        return await reshard(topics, name, change)

    monkeypatch.setattr(Topics, "reshard", reshard_later)
    refused = await web.refusal("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 1})
    assert refused[:2] == (409, "WRONG_STATE")
    monkeypatch.undo()
    await command(web, "mount")
    expected = [[0], [10, 11]]
    expected[index] = [] if is_trimmed else [*expected[index], 9]
    assert await ids(web, 2) == expected


async def test_a_tablet_that_is_mounted_before_the_change_is_decided_refuses_it(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(web, 2)
    reshard = Topics.reshard

    async def reshard_later(topics: Topics, name: str, change: Any) -> Any:
        await command(web, "mount")
        return await reshard(topics, name, change)

    monkeypatch.setattr(Topics, "reshard", reshard_later)
    refused = await web.refusal("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 3})
    assert refused[:2] == (409, "WRONG_STATE")
    assert await ids(web, 2) == [[0], [10, 11]]


async def test_tablets_without_rows_begin_where_they_did_after_another_reshard(web: Web) -> None:
    await filled(web, 1)
    assert (await command(web, "reshard", tablet_count=3, trimmed_row_counts=[10, 20]))[0] == 200
    assert (await command(web, "reshard", first_tablet_index=0, last_tablet_index=0, tablet_count=2))[0] == 200
    for _ in range(2):
        assert await tablets(web, "trimmed_row_count", "total_row_count") == [(0, 1), (0, 0), (10, 10), (20, 20)]
        await reopened(web)


async def test_more_tablets_than_the_node_may_have_are_refused(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(partitions_max=3)
    await filled(web, 2)
    status, _, message = await web.refusal("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 4})
    assert status == 409
    assert "pqbroker.partitions.max" in message
    assert len(await tablets(web, "state")) == 2
    assert (await command(web, "reshard", tablet_count=3))[0] == 200


async def test_the_same_count_changes_nothing(web: Web) -> None:
    await filled(web, 2)
    before = await tablets(web, "tablet_id", "total_row_count"), await epochs(web, 2)
    assert (await command(web, "reshard", tablet_count=2))[0] == 200
    assert (await tablets(web, "tablet_id", "total_row_count"), await epochs(web, 2)) == before


async def test_tablets_before_the_range_may_stay_mounted_and_serve(web: Web) -> None:
    await filled(web, 3)
    assert (await command(web, "mount", first_tablet_index=0, last_tablet_index=0))[0] == 200
    body = {"first_tablet_index": 0, "last_tablet_index": 0, "tablet_count": 2}
    assert (await web.refusal("POST", f"/v1/tables/{NAME}/reshard", body))[:2] == (409, "WRONG_STATE")
    assert (await command(web, "reshard", first_tablet_index=1, last_tablet_index=1, tablet_count=2))[0] == 200
    assert await tablets(web, "state") == ["mounted", "unmounted", "unmounted", "unmounted"]
    await insert(web, {"id": 1})
    assert await select(web) == [{"$tablet_index": 0, "$row_index": i, "id": i, "note": None} for i in range(2)]


async def test_offsets_of_groups_stay_with_their_rows(web: Web) -> None:
    await filled(web, 2)
    assert (await command(web, "mount"))[0] == 200
    body = {"offsets": [{"topic": NAME, "partition": 1, "offset": 2}]}
    assert (await web.ask("POST", "/v1/groups/readers/offsets", body))[0] < 300
    assert (await command(web, "unmount"))[0] == 200
    assert (await command(web, "reshard", first_tablet_index=0, last_tablet_index=0, tablet_count=2))[0] == 200
    assert (await command(web, "mount"))[0] == 200
    _, group = await web.ask("GET", "/v1/groups/readers")
    assert [(one["partition"], one["offset"]) for one in group["partitions"]] == [(2, 2)]


BEFORE = [[0], [10, 11], [20, 21, 22]]
AFTER = [[0], [], [10, 11], [20, 21, 22]]


@pytest.mark.parametrize("commit", range(5))
@pytest.mark.parametrize("fault", ["refused", "lost", "stored and lost"])
async def test_a_fault_in_any_commit_leaves_the_state_before_or_after(web: Web, fault: str, commit: int) -> None:
    await filled(web, 3)
    faults = web.node.engine.faults
    if fault == "refused":
        faults.refuse_next(after=commit)
    else:
        faults.lose_next(after=commit, stored=fault != "lost")
    status, _ = await command(web, "reshard", first_tablet_index=0, last_tablet_index=0, tablet_count=2)
    faults.clear()
    await reopened(web)
    assert (await command(web, "mount"))[0] == 200
    found = await ids(web, len(await tablets(web, "state")))
    assert found in ([AFTER] if status == 200 else [BEFORE, AFTER])
    if commit == 0 and fault != "stored and lost":
        assert found == BEFORE
