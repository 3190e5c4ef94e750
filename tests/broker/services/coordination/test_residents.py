"""A coordinator hosts residents of several kinds, each in a row set of its own, over restarts of its tablet."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from pqbroker.broker.services.coordination.classic.messages import GroupLimits
from pqbroker.broker.services.coordination.classic_groups import ClassicGroups
from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost, TabletSample
from pqbroker.storage.tablets.resident_rows import ResidentRows
from pqbroker.storage.tablets.row_sets import Row
from pqbroker.storage.tablets.tablet import TabletType
from tests.broker.conftest import until

TABLET = TabletId(16)


def read_lease(lease_id: str, row: Row) -> tuple[str, int]:
    until_ms: Any = row["until_ms"]
    return lease_id, int(until_ms)


LEASES = ResidentRows("lease", "leases", ("until_ms",), read_lease)


class Leases:
    """A kind of residents that end by themselves: who has one, and how long."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.held: dict[str, int] = {}
        self.over: list[str] = []
        self.closings = 0
        self.failures: list[BaseException | None] = []
        coordinator.admit(self)

    @property
    def rows(self) -> ResidentRows:
        return LEASES

    def load(self, stored: Sequence[tuple[str, int]]) -> None:
        self.held = dict(stored)
        for lease_id, until_ms in self.held.items():
            self.coordinator.wake_at(self, lease_id, until_ms)

    def wake(self, resident: str) -> None:
        del self.held[resident]
        self.over.append(resident)

    def close(self) -> None:
        self.closings += 1

    def __len__(self) -> int:
        return len(self.held)

    def take(self, lease_id: str, until_ms: int) -> Awaitable[None]:
        self.held[lease_id] = until_ms
        self.coordinator.wake_at(self, lease_id, until_ms)
        row: Row = {"until_ms": until_ms}
        return self.coordinator.store(lambda changes: LEASES.put(changes, lease_id, row), self.failures.append)


class Rig:
    """A coordinator with groups and leases on a tablet of a cell in memory."""

    async def start(self) -> "Rig":
        self.engine = MemoryEngine(1 << 26)
        self.host = TabletHost(await Cell.open(self.engine))
        await self.host.cell.create_tablets([(TABLET, TabletType.COORDINATOR, "test")])
        self.coordinator = Coordinator()
        self.groups = ClassicGroups(self.coordinator, GroupLimits(0, 60_000, 0, 10), lambda: 0)
        self.leases = Leases(self.coordinator)
        await self.host.start(TABLET, self.coordinator)
        return self


async def test_residents_of_two_kinds_live_side_by_side_and_are_counted_and_shown() -> None:
    rig = await Rig().start()
    await rig.leases.take("a", rig.coordinator.now_ms() + 60_000)
    rig.groups.host("g", "")
    assert set(rig.coordinator.samples()) == {TabletSample("residents", 1, (kind,)) for kind in ("group", "lease")}
    assert rig.coordinator.describe().row_sets == {"leases": 1}


async def test_a_resident_is_woken_once_at_its_time_and_a_later_time_wakes_it_early_at_most() -> None:
    rig = await Rig().start()
    now_ms = rig.coordinator.now_ms()
    await rig.leases.take("b", now_ms + 20_000)
    rig.leases.coordinator.wake_at(rig.leases, "b", now_ms + 1)
    rig.leases.coordinator.wake_at(rig.leases, "b", now_ms + 30_000)
    await until(lambda: rig.leases.over == ["b"])


def test_a_resident_that_is_due_at_once_may_be_given_a_time_again_on_the_loop_that_serves() -> None:
    """uvloop's `call_at` gives what is due at once a handle without a time."""

    async def wake_twice() -> None:
        rig = await Rig().start()
        rig.leases.held["b"] = 0
        for later_ms in (0, 0, 10_000):
            rig.coordinator.wake_at(rig.leases, "b", rig.coordinator.now_ms() + later_ms)
        await until(lambda: rig.leases.over == ["b"])

    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(wake_twice())


async def test_a_restart_loads_what_is_stored_and_leaves_no_timer_of_before() -> None:
    rig = await Rig().start()
    until_ms = rig.coordinator.now_ms() + 60_000
    await rig.leases.take("a", until_ms)
    rig.leases.held["never stored"] = 1
    assert await rig.host.restart(TABLET) == 2
    assert (rig.leases.held, rig.leases.closings) == ({"a": until_ms}, 1)
    rig.coordinator.check()
    await rig.host.stop()
    assert rig.leases.closings == 2
    assert rig.leases.failures == [None]


async def test_while_it_restarts_its_clients_come_again_and_what_is_being_stored_is_loaded() -> None:
    rig = await Rig().start()
    rig.engine.faults.hold()
    storing = asyncio.ensure_future(_awaited(rig.leases.take("a", rig.coordinator.now_ms() + 60_000)))
    restart = asyncio.ensure_future(rig.host.restart(TABLET))
    await until(lambda: rig.leases.closings == 1)
    with pytest.raises(KafkaError) as refused:
        rig.coordinator.check()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    rig.engine.faults.release()
    await restart
    await storing
    assert list(rig.leases.held) == ["a"]


async def test_a_refused_change_is_reported_to_its_kind_and_to_the_caller() -> None:
    rig = await Rig().start()
    rig.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await rig.leases.take("a", rig.coordinator.now_ms() + 60_000)
    assert [type(error) for error in rig.leases.failures] == [CommitRefused]


async def test_an_unreadable_row_costs_the_residents_of_its_tablet_and_stays() -> None:
    rig = await Rig().start()
    await rig.leases.take("a", 1 << 40)
    unreadable: Row = {"until_ms": "soon"}
    await rig.coordinator.store(lambda changes: LEASES.put(changes, "b", unreadable), rig.leases.failures.append)
    await rig.host.restart(TABLET)
    with pytest.raises(KafkaError, match="lease 'b' of tablet 16") as refused:
        rig.coordinator.check()
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (len(rig.leases), rig.coordinator.describe().row_sets) == (0, {"leases": 2})


async def _awaited(change: Awaitable[None]) -> None:
    await change
