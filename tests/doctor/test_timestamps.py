"""Timestamps of commits lie below the reservation in the scheme; the doctor names those that do not."""

import asyncio
from pathlib import Path

from pqbroker.doctor.findings import Weight
from pqbroker.pq.log.commit_timestamps import RESERVED_AHEAD, timestamp_of
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme import TIMESTAMPS_RESERVED, Scheme
from pqbroker.storage.tablets.scheme_state import SCHEME_FACTS, TableRecord
from tests.doctor.test_resharded import COLUMN, closed, look, opened
from tests.pq.rig import batch, write

NOW_MS = 1_700_000_000_000
COLUMNS = (COLUMN, {"name": "$timestamp", "type": "uint64"})
TABLE = TableRecord(COLUMNS, {}, MountedAttributes(({},), (0, 0)), ("mounted", "mounted"), (0, 0))


async def fill(data: Path) -> None:
    cell = await opened(data)
    topic = await cell.topics.create("t", 2, {"pq.partitions.per.tablet": "1"}, TABLE)
    for partition in topic.partitions:
        await write(partition, batch(b"a"))
    assert cell.scheme.timestamps_reserved == timestamp_of(NOW_MS) + RESERVED_AHEAD
    await closed(cell)


async def reserve(data: Path, reserved: int) -> None:
    cell = await opened(data)
    await lower(cell.scheme, reserved)
    await closed(cell)


async def lower(scheme: Scheme, reserved: int) -> None:
    await scheme._tablet.change(
        lambda changes: changes.put(SCHEME_FACTS, (TIMESTAMPS_RESERVED,), {"value": reserved})
    )


async def commit(data: Path) -> None:
    cell = await opened(data)
    topic = cell.topics.get("t")
    assert topic is not None
    await write(topic.partitions[0], batch(b"b"))
    assert cell.scheme.timestamps_reserved > timestamp_of(NOW_MS) + 1
    await closed(cell)


def test_the_doctor_names_a_timestamp_that_is_not_below_the_reservation(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(fill(data))
    assert look(data) == []
    asyncio.run(reserve(data, timestamp_of(NOW_MS) + 1))
    (finding,) = look(data)
    assert finding.weight is Weight.HARMLESS
    assert finding.what == (
        f"a commit has the timestamp {timestamp_of(NOW_MS) + 1}, not below {timestamp_of(NOW_MS) + 1} as reserved"
    )
    asyncio.run(commit(data))
    assert look(data) == []
