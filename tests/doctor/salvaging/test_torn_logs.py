"""A log blob of a base tablet that lacks a sector: its change is given up by name, all else is served."""

from pathlib import Path

import pytest

from pqbroker.doctor.salvaging.node import NodeSalvage, accept_node, salvage_node
from pqbroker.storage.disk.commits.commit_scan import CommitAt
from pqbroker.storage.engine import EngineError
from tests.broker.services.cells.test_data_cells import partition, started
from tests.doctor.salvaging.test_salvaging import tear
from tests.faults.diagnosis import named_damages
from tests.faults.power.recording import resident
from tests.pq.rig import batch, read_all
from tests.storage.cells import copy_alive
from tests.storage.disk.mending.cells import rounds

LARGE = 1000
"""Tablets of a topic whose creation is a log blob too large for the index."""


async def torn(path: Path) -> tuple[Path, int]:
    """A node's directory as a kill and a lost sector leave it: the creation of a topic is unreadable. The greatest id
    of its tablets."""
    async with started(path / "living") as opened:
        await opened.topics.create("kept", 1, {})
        await partition(opened, 0, "kept").write(*batch(b"kept"))
        lost = await opened.topics.create("lost", LARGE, {"pq.partitions.per.tablet": "1"})
        copy_alive(path / "living" / "data", path / "copy" / "data")
    data = path / "copy" / "data"
    written = rounds(data)
    (creation,) = [each for each in written if each.header.payload_bytes]
    for later in written[written.index(creation) + 1 :]:
        erase(later)
    tear(data, creation, back=creation.header.payload_bytes // 2)
    return path / "copy", max(lost.record.tablets)


def erase(record: CommitAt) -> None:
    """Leave a round as one that was not begun."""
    with record.path.open("r+b") as file:
        file.seek(record.position)
        file.write(bytes(record.header.record_bytes))


async def test_a_torn_log_blob_of_the_scheme_costs_its_change_alone(tmp_path: Path) -> None:
    path, last_id = await torn(tmp_path)
    with pytest.raises(EngineError, match="`pqbroker doctor --salvage`"):
        async with started(path):
            pass
    before = resident(path)
    shown = salvage_node(path / "data", {}, performs=False)
    assert resident(path) == before
    assert salvage_node(path / "data", {}, performs=True) == shown
    kinds = {loss.kind: (loss.where, loss.what) for loss in shown.losses}
    assert kinds.keys() == {"payload", "scheme"}
    named = [loss.what for loss in shown.losses if loss.kind == "scheme"]
    assert "topics may have been created, changed or deleted by what is lost; those that are known: kept" in named
    assert "changes of it are lost; 0 later ones do not fit without them" in named
    (goes_on,) = [int(what.removeprefix("goes on at ")) for what in named if what.startswith("goes on at ")][:1]
    async with started(path) as opened:
        assert list(opened.topics.names()) == ["kept"]
        assert [value for _, value in await read_all(partition(opened, 0, "kept"))] == [b"kept"]
        await partition(opened, 0, "kept").write(*batch(b"more"))
        again = await opened.topics.create("lost", 1, {})
        assert min(again.record.tablets) >= goes_on > last_id, "no tablet's id is given again"
        assert opened.cell.quarantine.is_held
    assert accept_node(path / "data", {}) == 1
    async with started(path) as opened:
        assert sorted(opened.topics.names()) == ["kept", "lost"]
        assert [value for _, value in await read_all(partition(opened, 0, "kept"))] == [b"kept", b"more"]
    assert salvage_node(path / "data", {}, performs=False) == NodeSalvage((), is_damaged=False)
    assert await named_damages(path / "data") == ()
