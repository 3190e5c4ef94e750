"""Prepared rows and decisions of transactions beside a lost round: they stay, and are named."""

from pathlib import Path

from pqbroker.doctor.salvaging.node import NodeSalvage, salvage_node
from pqbroker.pq.log.keys import prepared_key
from pqbroker.pq.serving.partition_server import PartitionServer
from tests.broker.services.cells.test_data_cells import partition, started
from tests.doctor.salvaging.directories import Killed
from tests.doctor.salvaging.test_salvaging import tear
from tests.pq.rig import START_MS, batch, read_all, write
from tests.pq.serving.transacting import decision, head, part, prepare, transaction
from tests.storage.cells import copy_alive
from tests.storage.disk.mending.cells import IN_ROWS, damage, rounds

LATER = 1 << 62
LARGE = bytes(range(256)) * 200


async def stored(path: Path) -> Path:
    """A directory as kill -9 leaves it: partition 0 has prepared rows, partition 1 a decision."""
    async with started(path / "living") as opened:
        await opened.topics.create("rows", 2, {})
        first, second = (partition(opened, index, "rows") for index in range(2))
        await write(first, batch(b"before"))
        await prepare(part(first, lambda: START_MS, LARGE, prepared=head(1)))
        decided = decision(2, LATER)
        await second.transactions.kv.execute([second.transactions.decision_command(decided)])
        await opened.topics.create("last", 1, {})
        copy_alive(path / "living" / "data", path / "copy" / "data")
    return path / "copy"


def salvaged(path: Path) -> NodeSalvage:
    shown = salvage_node(path / "data", {}, performs=False)
    assert salvage_node(path / "data", {}, performs=True) == shown
    return shown


def named(salvage: NodeSalvage) -> list[str]:
    return [f"{loss.where}: {loss.what}" for loss in salvage.losses if loss.kind == "transactions"]


async def values(server: PartitionServer) -> list[bytes | None]:
    return [value for _, value in await read_all(server)]


async def test_those_that_may_be_older_than_a_lost_round_stay_and_are_named(tmp_path: Path) -> None:
    path = await stored(tmp_path)
    damage(rounds(path / "data")[-1], IN_ROWS)
    what = "their rows may be missing here, or in other tablets, though they were committed"
    assert named(salvaged(path)) == [
        f"rows-{index}: {what}: {transaction(index + 1).hex()}" for index in range(2)
    ]
    async with started(path) as opened:
        first, second = (partition(opened, index, "rows") for index in range(2))
        assert first.transactions.is_in_doubt
        assert transaction(2) in second.transactions.decisions
        await first.transactions.finish(transaction(1), LATER)
        assert (await values(first))[-1] == LARGE


async def test_prepared_rows_of_a_torn_payload_are_named_and_refuse_their_partition(tmp_path: Path) -> None:
    async with started(tmp_path / "living") as opened:
        await opened.topics.create("rows", 1, {})
        await prepare(part(partition(opened, 0, "rows"), lambda: START_MS, LARGE, prepared=head(1)))
        copy_alive(tmp_path / "living" / "data", tmp_path / "data")
    tear(tmp_path / "data", Killed(tmp_path / "data", {}).round_with(prepared_key(0, transaction(1))))
    key = prepared_key(0, transaction(1)).decode()
    assert named(salvaged(tmp_path)) == [f"rows-0: what its row {key} holds is unreadable"]
    async with started(tmp_path) as opened:
        assert partition(opened, 0, "rows").state.unreadable is not None
