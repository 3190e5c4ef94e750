"""A log blob of a base tablet that lies in a segment and lacks a sector: its change is given up by name, all else is served."""

from pathlib import Path

import pytest

from pqbroker.doctor.checkup import examine
from pqbroker.doctor.findings import Findings, Weight
from pqbroker.doctor.salvaging.node import accept_node, salvage_node
from pqbroker.storage.disk.commits.commit_scan import CommitAt
from pqbroker.storage.engine import EngineError
from tests.broker.cells.test_data_cells import partition, started
from tests.doctor.salvaging.test_salvaging import tear
from tests.pq.rig import batch, read_all
from tests.storage.cells import copy_alive
from tests.storage.disk.mending.cells import rounds

LARGE = 1000
"""Tablets of a topic whose creation is a log blob too large for the index."""


async def torn(path: Path) -> Path:
    """A node's directory as a kill and a lost sector leave it: the creation of a topic is unreadable."""
    async with started(path / "living") as opened:
        await opened.topics.create("kept", 1, {})
        await partition(opened, 0, "kept").write(*batch(b"kept"))
        await opened.topics.create("lost", LARGE, {"pq.partitions.per.tablet": "1"})
        copy_alive(path / "living" / "data", path / "copy" / "data")
    data = path / "copy" / "data"
    written = rounds(data)
    (creation,) = [each for each in written if each.header.payload_bytes]
    for later in written[written.index(creation) + 1 :]:
        erase(later)
    tear(data, creation, back=creation.header.payload_bytes // 2)
    return path / "copy"


def erase(record: CommitAt) -> None:
    """Leave a round as one that was not begun."""
    with record.path.open("r+b") as file:
        file.seek(record.position)
        file.write(bytes(record.header.record_bytes))


async def test_a_torn_log_blob_costs_its_change_alone(tmp_path: Path) -> None:
    path = await torn(tmp_path)
    with pytest.raises(EngineError, match="salvage"):
        async with started(path):
            pass
    shown = salvage_node(path / "data", {}, performs=False)
    print(shown)
    assert salvage_node(path / "data", {}, performs=True) == shown
    async with started(path) as opened:
        assert sorted(opened.topics.names()) == ["kept"]
        assert [value for _, value in await read_all(partition(opened, 0, "kept"))] == [b"kept"]
