"""After a salvage nothing is given a second time: counters stand above all that lost rounds can have given."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from pqbroker.doctor.salvaging.base_logs import read_log
from pqbroker.doctor.salvaging.cell_plan import CellPlan, LearnedScheme
from pqbroker.doctor.salvaging.losses import CellSalvage
from pqbroker.pq.log.commit_timestamps import RESERVED_AHEAD, TIMESTAMP_MAX, CommitTimestamps, timestamp_of
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.bundles import hive
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.mending.salvage import Lost
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets import scheme_state
from pqbroker.storage.tablets.base_tablet import encode_record
from pqbroker.storage.tablets.channel_profiles import begin_channels
from pqbroker.storage.tablets.coordinator_rows import (
    GROUP_ROWS,
    LAST_PRODUCER_EPOCH,
    TRANSACTIONAL_ROWS,
    GroupImage,
    StoredGroup,
    TransactionalImage,
    group_row,
    transactional_row,
)
from pqbroker.storage.tablets.row_sets import Operation
from pqbroker.storage.tablets.scheme import TIMESTAMPS_RESERVED
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, TabletRecord, TabletType, record_key
from pqbroker.storage.tablets.value_encoding import encode
from tests.doctor.salvaging.test_lost_offsets import Stored

SCHEME, HIVE, COORDINATOR = TabletId(1), TabletId(2), TabletId(3)
GENERATION_MAX = (1 << 31) - 1
NOW_MS = time.time_ns() // 1_000_000


class SystemCell(Stored):
    """The broker's own tablets, each with one log blob, of which a later change may be lost."""

    def facts(self, tablet: TabletId, row_set: str, **facts: Any) -> None:
        kind = TabletType.SCHEME if tablet == SCHEME else TabletType.HIVE
        puts = [[Operation.PUT, row_set, [name], {"value": value}] for name, value in facts.items()]
        self.log(tablet, kind, [[Operation.CREATE, row_set, [["name", "str"]], ["value"]], *puts])

    def groups(self, **generations: int) -> None:
        create = [Operation.CREATE, GROUP_ROWS.row_set, [["group_id", "str"]], [*GROUP_ROWS.columns]]
        rows = {name: group_row(StoredGroup(_group(name, at), 0)) for name, at in generations.items()}
        puts = [[Operation.PUT, GROUP_ROWS.row_set, [name], dict(row)] for name, row in rows.items()]
        self.log(COORDINATOR, TabletType.COORDINATOR, [create, *puts])

    def producers(self, **epochs: int) -> None:
        columns = [*TRANSACTIONAL_ROWS.columns]
        create = [Operation.CREATE, TRANSACTIONAL_ROWS.row_set, [["transactional_id", "str"]], columns]
        rows = {name: transactional_row(TransactionalImage(name, 7, at, 1000)) for name, at in epochs.items()}
        puts = [[Operation.PUT, TRANSACTIONAL_ROWS.row_set, [name], dict(row)] for name, row in rows.items()]
        self.log(COORDINATOR, TabletType.COORDINATOR, [create, *puts])

    def log(self, tablet: TabletId, kind: TabletType, operations: list[Any]) -> None:
        record = TabletRecord(tablet, kind, 1, begin_channels(kind), "")
        self.index[index_rows.ROW + record_key(tablet)] = record.encode()
        body = encode_record(None, None, (), encode(operations))
        key = BlobId(tablet, LOG_CHANNEL, 1, 1, 0, len(body)).key()
        self.index[index_rows.BLOB + key] = index_rows.inline_row([body])

    def lose(self, rounds: int, others: Sequence[CellId] = ()) -> None:
        """Salvage the cell without its last rounds."""
        found = CellSalvage(self, Lost(rounds, 100 * rounds, frozenset()))
        CellPlan(found, SYSTEM_CELL, LearnedScheme(), others).plan()
        found.changes.apply(self)

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Any:
        return list(super().rows(lo, hi, reverse=reverse))

    def row_of(self, tablet: TabletId, row_set: str, name: str) -> Any:
        found = read_log(CellSalvage(self, Lost(0, 0, frozenset())), tablet)
        assert not found.is_broken
        return found.row_sets[row_set].get((name,))

    def fact(self, tablet: TabletId, row_set: str, name: str) -> Any:
        return self.row_of(tablet, row_set, name)["value"]


def _group(name: str, generation: int) -> GroupImage:
    return GroupImage(name, generation, "consumer", "range", None, ())


@pytest.fixture
def cell() -> SystemCell:
    made = SystemCell()
    made.facts(SCHEME, scheme_state.SCHEME_FACTS, next_tablet_id=70_000, next_producer_id=2_000)
    made.facts(HIVE, hive.HIVE_FACTS, next_cell=3)
    return made


def reservations(reserved: int, rounds: int, now_ms: int) -> int:
    """The last of the reservations that a busy node makes in some rounds."""
    timestamps = CommitTimestamps(reserved)
    for _ in range(rounds):
        timestamps.saw(timestamps.reserved - 1)
        wanted = timestamps.wanted(now_ms)
        assert wanted is not None
        timestamps.take_reservation(wanted)
    return timestamps.reserved


@pytest.mark.parametrize("rounds", [1, 2_000])
@pytest.mark.parametrize(
    "reserved_ms", [0, NOW_MS - 3_600_000, NOW_MS, NOW_MS + 3_600_000], ids=["never", "earlier", "now", "ahead"]
)
def test_timestamps_begin_above_every_reservation_that_is_lost(cell: SystemCell, rounds: int, reserved_ms: int) -> None:
    reserved = timestamp_of(reserved_ms)
    facts = {"next_tablet_id": 70_000, "next_producer_id": 0, TIMESTAMPS_RESERVED: reserved}
    cell.facts(SCHEME, scheme_state.SCHEME_FACTS, **facts)
    cell.lose(rounds)
    assert cell.fact(SCHEME, scheme_state.SCHEME_FACTS, TIMESTAMPS_RESERVED) >= reservations(reserved, rounds, NOW_MS)


def test_timestamps_begin_above_the_first_reservation_when_that_is_lost(cell: SystemCell) -> None:
    cell.lose(1)
    assert cell.fact(SCHEME, scheme_state.SCHEME_FACTS, TIMESTAMPS_RESERVED) >= timestamp_of(NOW_MS) + RESERVED_AHEAD


def test_timestamps_at_their_end_stay_in_64_bits(cell: SystemCell) -> None:
    facts = {"next_tablet_id": 70_000, "next_producer_id": 0, TIMESTAMPS_RESERVED: TIMESTAMP_MAX}
    cell.facts(SCHEME, scheme_state.SCHEME_FACTS, **facts)
    cell.lose(9)
    assert cell.fact(SCHEME, scheme_state.SCHEME_FACTS, TIMESTAMPS_RESERVED) == TIMESTAMP_MAX


@pytest.mark.parametrize("rounds", [1, 7])
def test_a_groups_generation_is_above_all_that_its_members_can_have_seen(cell: SystemCell, rounds: int) -> None:
    """Only completed rebalances are stored: some thousands may lie between two that are."""
    cell.groups(a=5, b=0, last=GENERATION_MAX - 10)
    cell.lose(rounds)
    found = {name: cell.row_of(COORDINATOR, GROUP_ROWS.row_set, name)["generation"] for name in ("a", "b", "last")}
    assert found["a"] >= 5 + rounds * 5_000
    assert found["b"] >= rounds * 5_000
    assert GENERATION_MAX - 10 < found["last"] < GENERATION_MAX


@pytest.mark.parametrize(
    ("rounds", "others", "least"), [(1, (), 4), (7, (), 10), (1, (CellId(9),), 11), (2, (CellId(1),), 5)]
)
def test_a_cells_number_is_above_those_of_cells_that_are_lost(
    cell: SystemCell, rounds: int, others: Sequence[CellId], least: int
) -> None:
    """A round makes one cell; its directory may be there though the round is lost."""
    cell.lose(rounds, others)
    assert cell.fact(HIVE, hive.HIVE_FACTS, "next_cell") >= least


@pytest.mark.parametrize("rounds", [1, 7])
def test_ids_of_tablets_and_producers_are_above_those_that_are_lost(cell: SystemCell, rounds: int) -> None:
    cell.lose(rounds)
    assert cell.fact(SCHEME, scheme_state.SCHEME_FACTS, "next_tablet_id") >= 70_000 + rounds * 10_000
    assert cell.fact(SCHEME, scheme_state.SCHEME_FACTS, "next_producer_id") >= 2_000 + rounds * 1_000


def test_what_later_rounds_wrote_stays_as_it_is(cell: SystemCell) -> None:
    found = CellSalvage(cell, Lost(1, 100, frozenset(key for key in cell.index if key[:1] == index_rows.BLOB)))
    CellPlan(found, SYSTEM_CELL, LearnedScheme(), ()).plan()
    found.changes.apply(cell)
    assert cell.fact(SCHEME, scheme_state.SCHEME_FACTS, "next_tablet_id") == 70_000
    assert cell.fact(HIVE, hive.HIVE_FACTS, "next_cell") == 3


def test_epochs_of_transactional_ids_move_behind_all_that_lost_changes_can_have_given(cell: SystemCell) -> None:
    cell.producers(a=4, last=LAST_PRODUCER_EPOCH, fenced=LAST_PRODUCER_EPOCH + 1)
    cell.lose(3)
    found = {
        name: TRANSACTIONAL_ROWS.read(name, cell.row_of(COORDINATOR, TRANSACTIONAL_ROWS.row_set, name)).epoch
        for name in ("a", "last", "fenced")
    }
    assert found["a"] >= 7
    assert (found["last"], found["fenced"]) == (LAST_PRODUCER_EPOCH, LAST_PRODUCER_EPOCH + 1)
