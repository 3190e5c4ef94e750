"""One tablet of a table through both doors, with refusals, lost cells, reshards, moves and age, against a list of rows.

It is the table's last one; the others are empty and unmounted, and reshards before it change its number. Once the table
was static it has no other. Each tablet has the age of rows that it took at its own mount or remount.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from pqbroker.pq.log.retention import AUTO_FLUSH_MS
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.faults import Faults
from pqbroker.storage.ids import SYSTEM_CELL, CellId
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_cells import engine_of, opened
from tests.broker.web.test_tables import NAME, create, reopened, tablets

pytestmark = pytest.mark.spec("E.10")

STEPS = 60
TTL_MS = 10_000
ENDS = {"mount": "mounted", "unmount": "unmounted", "freeze": "frozen", "unfreeze": "mounted"}
ALLOWED = {"mounted": {*ENDS}, "frozen": {"unmount", "freeze", "unfreeze"}, "unmounted": {"mount", "unmount"}}


@dataclass
class Model:
    """Ids of the rows by index, the first row that is kept, and the state."""

    ids: list[int] = field(default_factory=list)
    written_ms: list[int] = field(default_factory=list)
    first: int = 0
    state: str = "mounted"
    index: int = 1
    ttl_ms: int = TTL_MS
    """The age of rows that is set."""
    acting_ms: list[int] = field(default_factory=lambda: [TTL_MS, TTL_MS])
    """The age that acts, by tablet."""


class Driven:
    """A table whose last tablet is driven, and what that must be."""

    def __init__(self, web: Web, random: Random) -> None:
        self.web = web
        self.random = random
        self.model = Model()
        self.number = 0
        self.batches: dict[int, list[int]] = {}
        """Ids by sequence."""
        self.taken = 0

    def some(self) -> list[int]:
        count = self.random.randint(1, 4)
        self.number += count
        return list(range(self.number - count, self.number))

    def take(self, ids: list[int]) -> None:
        self.model.ids += ids
        self.model.written_ms += [self.web.node.clock.now_ms] * len(ids)

    @property
    def faults(self) -> Faults:
        """Of the cell that the tablet lives in."""
        topic = opened(self.web).topics.get(NAME)
        assert topic is not None
        home = topic.record.cell_of(self.model.index)
        return (self.web.node.engine if home == SYSTEM_CELL else engine_of(self.web, home)).faults

    def rows(self, ids: list[int]) -> dict[str, Any]:
        return {"rows": [{"id": number, "$tablet_index": self.model.index} for number in ids]}

    def range(self) -> dict[str, Any]:
        return {"first_tablet_index": self.model.index, "last_tablet_index": self.model.index}

    async def insert(self) -> None:
        ids = self.some()
        status, _ = await self.web.ask("POST", f"/v1/tables/{NAME}/rows", self.rows(ids))
        assert status == (200 if self.model.state == "mounted" else 409)
        if status == 200:
            self.take(ids)

    async def insert_and_be_refused(self) -> None:
        if self.model.state == "mounted":
            self.faults.refuse_next()
            assert (await self.web.ask("POST", f"/v1/tables/{NAME}/rows", self.rows(self.some())))[0] == 503

    async def insert_batch(self) -> None:
        """A batch of a session: the next one, or one that was sent before, whatever became of it."""
        if self.batches and self.random.random() < 0.5:
            sequence = max(1, self.random.randint(max(self.batches) - 2, max(self.batches)))
        else:
            sequence = max(self.batches, default=0) + self.random.randint(1, 2)
        ids = self.batches.get(sequence) or self.some()
        body = self.rows(ids) | {"session": "s", "sequence": sequence}
        if is_refused := self.random.random() < 0.3:
            self.faults.refuse_next()
        is_taken = sequence <= self.taken
        status, answer = await self.web.ask("POST", f"/v1/tables/{NAME}/rows", body)
        if is_taken:
            assert (status, answer["duplicate"]) == (200, True)
        elif self.model.state != "mounted":
            assert status == 409
        else:
            assert status == (503 if is_refused else 200)
        if status == 200 and not is_taken:
            self.taken = sequence
            self.take(ids)
        self.batches[sequence] = ids
        self.faults.clear()

    async def produce(self) -> None:
        ids = self.some()
        values = [b'{"id":%d}' % number for number in ids]
        answer = await self.web.node.produce(NAME, *values, partition=self.model.index)
        codes = {"mounted": 0, "frozen": ErrorCode.POLICY_VIOLATION, "unmounted": ErrorCode.LEADER_NOT_AVAILABLE}
        assert answer.error_code == codes[self.model.state]
        if answer.error_code == 0:
            assert answer.base_offset == len(self.model.ids)
            self.take(ids)

    async def trim(self) -> None:
        count = self.random.randint(-1, len(self.model.ids) + 1)
        body = {"tablet_index": self.model.index, "trimmed_row_count": count}
        status, _ = await self.web.ask("POST", f"/v1/tables/{NAME}/trim", body)
        if count > len(self.model.ids):
            assert status == 400
        else:
            assert status == (200 if self.model.state == "mounted" else 409)
        if status == 200:
            self.model.first = max(self.model.first, count)

    async def change(self) -> None:
        verb = self.random.choice(list(ENDS))
        body = self.range() | ({"force": True} if verb == "unmount" and self.random.random() < 0.5 else {})
        status, _ = await self.web.ask("POST", f"/v1/tables/{NAME}/{verb}", body)
        is_allowed = verb in ALLOWED[self.model.state]
        assert status == (200 if is_allowed else 409), (verb, self.model.state)
        if is_allowed:
            self.arrive(ENDS[verb])

    def arrive(self, state: str) -> None:
        """Only a mount of the unmounted tablet takes what is set."""
        if self.model.state == "unmounted" != state:
            self.model.acting_ms[-1] = self.model.ttl_ms
        self.model.state = state

    async def set_age(self) -> None:
        self.model.ttl_ms = self.random.choice((TTL_MS // 2, TTL_MS, 3 * TTL_MS))
        body = {"attributes": {"max_data_ttl": self.model.ttl_ms}}
        assert (await self.web.ask("PATCH", f"/v1/tables/{NAME}", body))[0] == 200

    async def remount(self) -> None:
        """Some tablets, whatever their states."""
        first = self.random.randint(0, self.model.index)
        last = self.random.randint(first, self.model.index)
        body = {"first_tablet_index": first, "last_tablet_index": last}
        if is_refused := self.random.random() < 0.3:
            self.web.node.engine.faults.refuse_next()
        status, _ = await self.web.ask("POST", f"/v1/tables/{NAME}/remount", body)
        assert status == (503 if is_refused else 200)
        for index in range(first, last + 1) if not is_refused else ():
            self.model.acting_ms[index] = self.model.ttl_ms

    async def change_and_be_refused(self) -> None:
        verb = {"mounted": "freeze", "frozen": "unfreeze", "unmounted": "mount"}[self.model.state]
        self.web.node.engine.faults.refuse_next()
        assert (await self.web.ask("POST", f"/v1/tables/{NAME}/{verb}", self.range()))[0] == 503

    async def reshard(self) -> None:
        """Other tablets come or go before ours."""
        if self.model.index == 0:
            return
        count = self.random.randint(1, 4)
        body = {"first_tablet_index": 0, "last_tablet_index": self.model.index - 1, "tablet_count": count}
        is_refused = self.model.state == "unmounted" and count != self.model.index and self.random.random() < 0.3
        if is_refused:
            self.web.node.engine.faults.refuse_next()
        status, _ = await self.web.ask("POST", f"/v1/tables/{NAME}/reshard", body)
        is_allowed = self.model.state == "unmounted" or count == self.model.index
        assert status == (503 if is_refused else 200 if is_allowed else 409)
        if status == 200:
            model = self.model
            before, own = model.acting_ms[: model.index], model.acting_ms[-1]
            model.acting_ms = [*before[:count], *[model.ttl_ms] * (count - model.index), own]
            model.index = count

    async def reopen(self) -> None:
        await reopened(self.web)
        await until(lambda: opened(self.web).others.health(CellId(1)) == "good")

    async def move(self) -> None:
        """To another cell, or not: the tablet is mounted there."""
        body = self.range() | {"cell_id": self.random.choice("01")}
        status, _ = await self.web.ask("POST", f"/v1/tables/{NAME}/mount", body)
        is_allowed = self.model.state != "frozen"
        assert status == (200 if is_allowed else 409)
        if is_allowed:
            self.arrive("mounted")

    async def glue(self) -> None:
        """Join the empty tablet before this one: the rows that are left have new numbers there."""
        if self.model.index < 2:
            return
        body = {"first_tablet_index": self.model.index - 1, "last_tablet_index": self.model.index, "tablet_count": 1}
        status, answer = await self.web.ask("POST", f"/v1/tables/{NAME}/reshard", body)
        if self.model.state != "unmounted":
            assert status == 409
        elif status == 200:
            self.copied(self.model.first)
            self.model.index -= 1
            del self.model.acting_ms[-1]  # the tablet before stands, with its own
        else:
            assert answer["error"]["code"] == "CANNOT_GLUE"
            assert 0 < self.model.first < len(self.model.ids)

    async def convert(self) -> None:
        """The table is static, then dynamic again: rows that were trimmed inside a chunk are back."""
        model, is_refused = self.model, self.random.random() < 0.3
        if is_refused:
            self.web.node.engine.faults.refuse_next()
        statuses = []
        for dynamic in (False, True, True):
            status, _ = await self.web.ask("POST", f"/v1/tables/{NAME}/alter", {"dynamic": dynamic})
            statuses.append(status)
        self.web.node.engine.faults.clear()
        if model.state != "unmounted":
            assert statuses == [409, 200, 200]
            return
        assert statuses == [503 if is_refused else 200, 200, 200]
        if is_refused:
            return
        model.index = 0
        del model.acting_ms[1:]
        gone = len(model.ids) - (await tablets(self.web, "total_row_count"))[0]
        assert 0 <= gone <= model.first
        self.copied(gone)

    def copied(self, gone: int) -> None:
        """Rows from an index on were written again: their age begins anew."""
        model = self.model
        model.ids, model.first = model.ids[gone:], 0
        model.written_ms = [self.web.node.clock.now_ms] * len(model.ids)

    async def age(self) -> None:
        """Rows go when they are old, whole blobs from the front; those that were just written stay a while."""
        model, clock, ttl_ms = self.model, self.web.node.clock, self.model.acting_ms[-1]
        clock.now_ms += self.random.choice((TTL_MS // 2, TTL_MS, AUTO_FLUSH_MS + 1))
        await opened(self.web).topics.retain(nobody_knows)
        first = (await tablets(self.web, "trimmed_row_count"))[model.index]
        if model.state != "mounted":
            assert first == model.first
        else:
            assert all(written_ms <= clock.now_ms - ttl_ms for written_ms in model.written_ms[model.first : first])
            if model.written_ms and clock.now_ms - model.written_ms[-1] > max(ttl_ms, AUTO_FLUSH_MS):
                assert first == len(model.ids)
        model.first = first

    async def check(self) -> None:
        model = self.model
        counts = [("unmounted", 0, 0)] * model.index + [(model.state, model.first, len(model.ids))]
        assert await tablets(self.web, "state", "trimmed_row_count", "total_row_count") == counts
        acting = await tablets(self.web, "mounted_attributes")
        assert [one["max_data_ttl"] for one in acting] == model.acting_ms
        path = f"/v1/tables/{NAME}/rows?limit=1000&tablet_index={model.index}"
        status, answer = await self.web.ask("GET", path)
        if model.state == "unmounted":
            assert status == 409
            return
        rows: list[Any] = answer["rows"]
        kept = range(model.first, len(model.ids))
        assert [(row["$row_index"], row["id"]) for row in rows] == [(index, model.ids[index]) for index in kept]


@pytest.mark.spec("K.5")
@pytest.mark.parametrize("seed", [*range(6), 35])
async def test_a_table_is_what_a_list_of_its_rows_is(web: Web, seed: int) -> None:
    driven = Driven(web, Random(seed))
    assert (await web.ask("POST", "/v1/cells", {"bundle": "default"}))[0] == 201
    ages = {"min_data_versions": 0, "max_data_versions": 1, "min_data_ttl": 0, "max_data_ttl": TTL_MS}
    await create(web, tablet_count=2, mount=False, attributes=ages)
    assert (await web.ask("POST", f"/v1/tables/{NAME}/mount", driven.range()))[0] == 200
    steps = [driven.insert] * 4 + [driven.produce] * 3 + [driven.change] * 4
    steps += [driven.trim, driven.insert_and_be_refused, driven.change_and_be_refused, driven.reopen]
    steps += [driven.reshard] * 2 + [driven.insert_batch] * 3 + [driven.move, driven.glue, driven.age, driven.convert]
    steps += [driven.set_age, driven.remount] * 2
    for _ in range(STEPS):
        await driven.random.choice(steps)()
        await driven.check()
