"""A node whose cells have no room for a log: opened for reading only, by every door, until there is room again."""

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pqbroker.broker.node import server
from pqbroker.broker.services.cells.cell_owner import CellOwner, open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.doctor.checkup import examine
from pqbroker.doctor.findings import Findings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest
from pqbroker.protocol.messages.list_groups import ListGroupsRequest
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
)
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest
from pqbroker.protocol.messages.sync_group import SyncGroupRequest
from pqbroker.storage.bundles.hive import CellState
from pqbroker.storage.disk.free_space import ASKED_BYTES, CellSpace
from pqbroker.storage.engine import EngineError, NoRoom
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.scheme_topics import TopicChanges
from tests.broker.conftest import Clock, make_batch, produce_request, until
from tests.broker.services.cells.full_site import PLENTY, SCHEMA, Site, commit, committed, filled_site
from tests.broker.web.conftest import Web
from tests.broker.wire import error_codes
from tests.support.wire import Wire

FULL = "opened for reading only, since its disk is full: free at least 1 MiB"

@pytest.fixture
async def site(tmp_path: Path) -> Site:
    return await filled_site(tmp_path)


def altered(kind: int, name: str, config: str) -> AlterConfigsResource:
    configs = [AlterableConfig(name=config, config_operation=0, value="1000")]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


async def stored(web: Web, topic: str) -> int:
    """How many batches a consumer without a group reads from partition 0."""

    def read() -> int:
        with Wire(str(web.node.server.kafka_address)) as wire:
            return len(list(wire.log(topic, 0)))

    return await asyncio.to_thread(read)


async def until_taken(web: Web, topic: str) -> None:
    """Produce until a record is taken."""
    async with asyncio.timeout(20):
        while (await web.node.produce(topic, b"v")).error_code != ErrorCode.NONE:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until_written(web: Web) -> None:
    """Wait until every cell takes writes again."""
    async with asyncio.timeout(20):
        while True:
            _, found = await web.ask("GET", "/v1/cells")
            if all(cell["health"] == "good" for cell in found["cells"]):
                return
            await asyncio.sleep(0.02)


async def test_consumers_read_everything_that_was_acknowledged_in_every_cell(site: Site) -> None:
    async with site.served() as web:
        assert [await stored(web, topic) for topic in ("kept", "far")] == [2, 2]
        _, rows = await web.ask("GET", "/v1/tables/rows/rows?tablet_index=0")
        assert [row["id"] for row in rows["rows"]] == [1]


WRITES: dict[str, tuple[Any, int | None, ErrorCode]] = {
    "Produce": (produce_request("kept", make_batch()), 9, ErrorCode.KAFKA_STORAGE_ERROR),
    "Produce to another cell": (produce_request("far", make_batch()), 9, ErrorCode.KAFKA_STORAGE_ERROR),
    "CreateTopics": (
        CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]),
        None, ErrorCode.KAFKA_STORAGE_ERROR,
    ),
    "CreatePartitions": (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="kept", count=3, assignments=None)]),
        None, ErrorCode.KAFKA_STORAGE_ERROR,
    ),
    "DeleteTopics": (DeleteTopicsRequest(topic_names=["kept"]), 5, ErrorCode.KAFKA_STORAGE_ERROR),
    "DeleteRecords": (
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="kept", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])]
        ),
        None, ErrorCode.KAFKA_STORAGE_ERROR,
    ),
    "IncrementalAlterConfigs": (
        IncrementalAlterConfigsRequest(
            resources=[altered(2, "kept", "retention.ms")]
        ),
        None, ErrorCode.KAFKA_STORAGE_ERROR,
    ),
    "IncrementalAlterConfigs of the node": (
        IncrementalAlterConfigsRequest(
            resources=[altered(4, "1", "log.retention.ms")]
        ),
        None, ErrorCode.KAFKA_STORAGE_ERROR,
    ),
    "InitProducerId": (
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), None,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ),
    "OffsetCommit": (
        OffsetCommitRequest(group_id="g", topics=[committed(1)]), 8, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    "FindCoordinator": (FindCoordinatorRequest(coordinator_keys=["g"]), None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "JoinGroup": (
        JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        5, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    "SyncGroup": (
        SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]), 3,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    "Heartbeat": (
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), None, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    "LeaveGroup": (LeaveGroupRequest(group_id="g", member_id="m"), 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=["g"]), None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "DescribeGroups": (DescribeGroupsRequest(groups=["g"]), None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "ListGroups": (ListGroupsRequest(), None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "OffsetFetch": (OffsetFetchRequest(group_id="g", topics=None), 7, ErrorCode.COORDINATOR_NOT_AVAILABLE),
}  # fmt: skip


def texts(answer: Any) -> set[str]:
    """Every text of an answer that says why."""
    found = {getattr(answer, name) for name in ("error_message",) if getattr(answer, name, None)}
    for name in ("topics", "responses", "results", "coordinators", "partition_responses"):
        for each in getattr(answer, name, None) or ():
            found |= texts(each)
    return found


async def test_each_write_is_answered_with_the_disks_error_and_its_cure(site: Site) -> None:
    async with site.served() as web:
        client = await web.node.connect()
        found = {}
        for name, (request, version, _) in WRITES.items():
            answer = await client.ask(request, version)
            found[name] = set(error_codes(answer)) - {ErrorCode.NONE}
            assert all(FULL in text for text in texts(answer)), (name, texts(answer))
        assert found == {name: {code} for name, (_, _, code) in WRITES.items()}
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in web.node.server.node.metrics.errors


DAY_MS = 86_400_000
WALKS = 5
"""Rounds of each periodic work."""

CHANGES: dict[str, tuple[str, str, Any]] = {
    "records": ("POST", "/v1/topics/kept/records", {"records": [{"value": "a"}]}),
    "a new topic": ("POST", "/v1/topics", {"name": "new"}),
    "a topic's end": ("DELETE", "/v1/topics/kept", None),
    "more partitions": ("POST", "/v1/topics/kept/partitions", {"count": 3}),
    "configs": ("PATCH", "/v1/topics/kept/configs", {"configs": {"retention.ms": "1000"}}),
    "rows": ("POST", "/v1/tables/rows/rows", {"rows": [{"id": 2}]}),
    "a new table": ("POST", "/v1/tables", {"path": "//more", "schema": SCHEMA}),
    "a table's trim": ("POST", "/v1/tables/rows/trim", {"tablet_index": 0, "trimmed_row_count": 1}),
    "a table's unmount": ("POST", "/v1/tables/rows/unmount", {}),
    "a table's attributes": ("PATCH", "/v1/tables/rows", {"attributes": {"max_data_ttl": 1000}}),
    "a table's end": ("DELETE", "/v1/tables/rows", None),
    "a setting": ("PATCH", "/v1/settings", {"settings": {"log.retention.ms": "1000"}}),
    "a bundle": ("POST", "/v1/bundles", {"name": "c"}),
    "a cell": ("POST", "/v1/cells", {"bundle": "b"}),
    "offsets": ("POST", "/v1/groups/g/offsets", {"offsets": [{"topic": "kept", "partition": 0, "offset": 0}]}),
    "a group's end": ("DELETE", "/v1/groups/g", None),
    "a backup": ("POST", "/v1/backups", {"name": "x"}),
}


async def test_each_change_over_http_is_answered_with_cause_and_cure(site: Site) -> None:
    async with site.served(console_writes=True) as web:
        answers = {name: (await web.ask(*change))[1] for name, change in CHANGES.items()}
        assert {name: answer for name, answer in answers.items() if FULL not in str((answer or {}).get("error"))} == {}
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in web.node.server.node.metrics.errors


async def test_what_does_not_run_meanwhile_does_not_show_as_running(site: Site) -> None:
    async with site.served() as web:
        _, found = await web.ask("GET", "/v1/tablets")
        states = {(tablet["type"], tablet["state"]) for tablet in found["tablets"]}
        assert {each for each in states if each[0] == "coordinator"} == {("coordinator", "not started")}
        assert {state for kind, state in states if kind != "coordinator"} == {"running"}
        status, refused = await web.ask("GET", "/v1/groups")
        assert (status, refused["error"]["code"]) == (503, "COORDINATOR_NOT_AVAILABLE")
        assert FULL in refused["error"]["message"]
        assert refused["error"]["cure"].startswith("See to what the message names")
        site.disks.free()
        await until_written(web)
        _, found = await web.ask("GET", "/v1/tablets")
        assert {tablet["state"] for tablet in found["tablets"]} == {"running"}


def reading_only(document: Any) -> list[str]:
    """Places that are open for reading only, as a door shows them."""
    return [one["place"] for one in document["conditions"] if one["kind"] == "reading-only"]


async def test_the_node_says_so_where_one_looks_at_its_health(site: Site) -> None:
    async with site.served() as web:
        status, health = await web.ask("GET", "/health")
        assert (status, health["status"], reading_only(health)) == (200, "degraded", ["cell 0", "cell 1"])
        told = {one["place"]: f"{one['cause']}: {one['cure']}" for one in health["conditions"]}
        assert FULL in told["cell 1"]
        status, ready = await web.ask("GET", "/ready")
        assert (status, ready["conditions"]) == (200, health["conditions"])
        metrics = await web.text("/metrics")
        assert 'pqbroker_cell_reading_only{cell="0"} 1' in metrics
        assert 'pqbroker_cell_reading_only{cell="1"} 1' in metrics
        assert 'pqbroker_disk_colour{cell="0",pool="main"} 30' in metrics
        _, cells = await web.ask("GET", "/v1/cells")
        assert [cell["health"] for cell in cells["cells"]] == ["reading only"] * 2
        assert all(FULL in cell["cause"] for cell in cells["cells"])
        _, node = await web.ask("GET", "/v1/node")
        assert node["is_open"]
        assert reading_only(node) == ["cell 0", "cell 1"]
        _, partitions = await web.ask("GET", "/v1/topics/kept/partitions/0")
        assert FULL in str(partitions)


async def test_with_a_mebibyte_free_deletes_are_taken_without_a_restart(site: Site) -> None:
    async with site.served() as web:
        site.disks.free(ASKED_BYTES)
        await until_written(web)
        client = await web.node.connect()
        trim, _, _ = WRITES["DeleteRecords"]
        assert (await client.ask(trim)).topics[0].partitions[0].error_code == ErrorCode.NONE
        assert (await web.node.produce("kept", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        deleted = await client.ask(DeleteTopicsRequest(topic_names=["far"]), 5)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        _, health = await web.ask("GET", "/health")
        assert [one["kind"] for one in health["conditions"]] == ["disk-full", "disk-full"]


async def test_with_enough_room_everything_works_again_by_itself(site: Site) -> None:
    async with site.served() as web:
        assert await commit(web, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        site.disks.free()
        await until_written(web)
        for topic in ("kept", "far"):
            await until_taken(web, topic)
            assert await stored(web, topic) == 3
        _, group = await web.ask("GET", "/v1/groups/g")
        assert [one["offset"] for one in group["partitions"]] == [2]
        assert await commit(web, 3) == ErrorCode.NONE
        assert reading_only((await web.ask("GET", "/ready"))[1]) == []
    async with site.served() as web:
        assert await stored(web, "kept") == 3


async def test_a_further_cell_alone_is_opened_for_reading_only_and_the_others_take_writes(site: Site) -> None:
    site.disks.system.f_bavail = PLENTY
    async with site.served() as web:
        assert (await web.node.produce("kept", b"v")).error_code == ErrorCode.NONE
        assert (await web.node.produce("far", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await stored(web, "far") == 2
        _, cells = await web.ask("GET", "/v1/cells")
        assert [cell["health"] for cell in cells["cells"]] == ["good", "reading only"]
        status, ready = await web.ask("GET", "/ready")
        assert (status, ready["status"], reading_only(ready)) == (200, "degraded", ["cell 1"])
        _, code, message = await web.refusal("POST", "/v1/backups", {"name": "x"})
        assert code == "BACKUP_REFUSED"
        assert FULL in message
        assert reading_only((await web.ask("GET", "/health"))[1]) == ["cell 1"]
        await web.node.server._cell.retain()
        site.disks.one.f_bavail = PLENTY
        await until_taken(web, "far")


async def test_the_system_cell_alone_is_opened_for_reading_only_and_the_others_take_records(site: Site) -> None:
    site.disks.one.f_bavail = PLENTY
    async with site.served() as web:
        assert (await web.node.produce("far", b"v")).error_code == ErrorCode.NONE
        assert (await web.node.produce("kept", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        deleted = await (await web.node.connect()).ask(DeleteTopicsRequest(topic_names=["far"]), 5)
        assert deleted.responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await stored(web, "far") == 3


@pytest.mark.parametrize("what", ["a refusal", "a write that fails"])
async def test_a_start_whose_first_commit_finds_no_room_is_one_for_reading_only(
    site: Site, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse(self: CellSpace, batch: object) -> bool:
        return False

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    site.disks.free(2 * ASKED_BYTES)
    with monkeypatch.context() as patch:
        if what == "a refusal":
            patch.setattr(CellSpace, "take", refuse)
        else:
            patch.setattr(os, "pwritev", fail)
        async with site.served() as web:
            assert reading_only((await web.ask("GET", "/health"))[1]) == ["cell 0", "cell 1"]
            assert [await stored(web, topic) for topic in ("kept", "far")] == [2, 2]
    async with site.served() as web:
        assert reading_only((await web.ask("GET", "/health"))[1]) == []
        assert [await stored(web, topic) for topic in ("kept", "far")] == [2, 2]


async def test_nothing_periodic_writes_or_fails_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    walks: list[str] = []
    for name in ("retain", "renew"):
        monkeypatch.setattr(CellOwner, name, counted(getattr(CellOwner, name), name, walks))
    monkeypatch.setattr(server, "RENEWAL_LOOK_S", 0.01)
    async with site.served(retention_check_interval_ms=10) as web:
        caplog.clear()
        web.node.clock.now_ms += 365 * DAY_MS  # the retention of everything is over
        await until(lambda: walks.count("retain") >= WALKS and walks.count("renew") >= WALKS)
        assert not web.node.server.failed.done()
        cell = web.node.server.node.cell.current.cell
        assert cell.stats().refused == 0
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def counted(walk: Callable[..., Awaitable[None]], name: str, walks: list[str]) -> object:
    async def count(owner: CellOwner, *given: object) -> None:
        await walk(owner, *given)
        walks.append(name)

    return count


async def test_a_cell_whose_removal_was_begun_waits_for_room(site: Site) -> None:
    site.disks.free()
    async with site.served() as web:
        current = web.node.server.node.cell.current
        await (await web.node.connect()).ask(DeleteTopicsRequest(topic_names=["far"]), 5)
        await current.hive.set_state(CellId(1), CellState.REMOVING)
    site.disks.fill()
    async with site.served() as web:
        assert await stored(web, "kept") == 2
        assert (site.data / "cells" / "1").is_dir()
        site.disks.free()
        async with asyncio.timeout(20):
            while (site.data / "cells" / "1").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_a_topic_that_a_crash_left_without_tablets_does_not_keep_the_cell_from_being_read(site: Site) -> None:
    site.disks.free()
    opened = await open_cell(site.engine(), BrokerSettings(), Clock())
    await TopicChanges(opened.scheme, lambda: 0).create("half", 1, {}, 1, None)
    await opened.stop()
    await opened.cell.close()
    site.disks.fill()
    async with site.served() as web:
        assert (await web.node.produce("half", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        site.disks.free()
        await until_taken(web, "half")


async def test_the_directory_is_healthy_behind_it_and_in_use_meanwhile(site: Site) -> None:
    findings = Findings(lambda size: None)
    async with site.served():
        with pytest.raises(EngineError, match="in use"):
            await examine(site.data, {}, findings, lambda total: None)
    await examine(site.data, {}, findings, lambda total: None)
    assert findings.found == []
    assert findings.seen["topics"] == 3


async def test_a_directory_that_is_new_says_that_the_disk_is_full(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.disks.fill()
    with pytest.raises(NoRoom, match="full: 0 bytes are free"):
        async with site.served():
            pass
