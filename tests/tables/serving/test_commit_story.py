"""Any order of commits over two cells, plain writes, flushes, compactions and crashes: tablets are as a naive model.

Commits are performed by hand, step by step, so that a crash comes between any two. In the end every version of every
row is compared, at each timestamp that was ever given.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX, CommitTimestamps
from pqbroker.pq.transactions.participants import LookAgain
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.outcome import Outcome
from pqbroker.tables.refusals import TableError
from tests.simulation.inline_workers import inline_workers
from tests.simulation.loop import VirtualLoop
from tests.support.depth import examples
from tests.tables.serving.commit_bench import CELL_OF, FIRST_ID, CommitBench, CommitByHand

KEYS = 3
STEP_S = 60.0
SETTLES_S = 0.02
REFUSED = (CommitRefused, TableError, LookAgain)
ATTRIBUTES = {"min_compaction_store_count": 2, "max_data_versions": 1000}

tablets = st.integers(0, len(CELL_OF) - 1)
keys = st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=3, unique=True)
cells = st.integers(0, 1)
Place = tuple[int, int]
"""A tablet and a key."""


class NotedTimestamps(CommitTimestamps):
    """Notes each timestamp that it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved = TIMESTAMP_MAX
        self.given: list[int] = []

    def give(self, now_ms: int) -> int:
        self.given.append(super().give(now_ms))
        return self.given[-1]


@dataclass
class Written:
    """What one write or commit has sent. `timestamp` None and not `is_gone`: it may be stored, or not."""

    rows: Mapping[Place, int | None]
    timestamp: int | None = None
    is_gone: bool = False


@dataclass
class Performed:
    """A commit, and how far it has come."""

    commit: CommitByHand
    written: Written
    step: int = 0
    task: "asyncio.Task[None] | None" = None
    is_under_way: bool = True

    @property
    def is_idle(self) -> bool:
        return self.task is None or self.task.done()


class CommitStory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._inline = inline_workers()
        self._inline.__enter__()
        self._loop = VirtualLoop(lambda: 0.002)
        self._runner = asyncio.Runner(loop_factory=lambda: self._loop)
        self.sent: list[Written] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.commits: list[Performed] = []
        self.values = count(1)
        self.lost: set[int] = set()

    def _run(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def take() -> None:
            async with asyncio.timeout(STEP_S):
                await step()
                await asyncio.sleep(SETTLES_S)
                self._note_losses()

        self._runner.run(take())
        assert not self._loop.defects

    def _note_losses(self) -> None:
        for cell in (0, 1):
            if self.bench.cells[cell].lost.done() and cell not in self.lost:
                self._lose(cell)

    def _lose(self, cell: int, durable: int = 0) -> None:
        self.lost.add(cell)
        self.bench.crash(cell, durable)

    @initialize()
    def begin(self) -> None:
        async def start() -> None:
            self.bench = CommitBench(ATTRIBUTES)
            self.rule = self.bench.time.timestamps.rule = NotedTimestamps()
            await self.bench.open()
            self.bench.background.start()

        self._runner.run(start())

    # Plain writes

    @rule(tablet=tablets, some=keys, deletes=st.booleans())
    def write(self, tablet: int, some: Sequence[int], deletes: bool) -> None:
        rows = {key: None if deletes else next(self.values) for key in some}
        self._send({tablet: rows}, lambda: self.bench.write(tablet, rows))

    @rule(first=keys, second=keys)
    def write_to_two_tablets(self, first: Sequence[int], second: Sequence[int]) -> None:
        rows: list[dict[int, int | None]] = [{key: next(self.values) for key in some} for some in (first, second)]
        self._send({0: rows[0], 1: rows[1]}, lambda: self.bench.write_both(*rows))

    def _send(self, rows: Mapping[int, Mapping[int, int | None]], send: Callable[[], Outcome[int]]) -> None:
        written = Written({(tablet, key): value for tablet, some in rows.items() for key, value in some.items()})
        self.sent.append(written)

        async def step() -> None:
            try:
                written.timestamp = await send()
            except REFUSED:
                written.is_gone = True
            except ShardLost:
                pass  # it may be stored, or not

        async def begin() -> None:
            self.tasks.append(asyncio.ensure_future(step()))

        self._run(begin)

    # Commits, step by step

    @rule(
        home=tablets, others=st.lists(tablets, max_size=2), some=keys, checks=st.booleans(), steps=st.integers(0, 3)
    )  # fmt: skip
    def begin_commit(self, home: int, others: Sequence[int], some: Sequence[int], checks: bool, steps: int) -> None:
        """Begin a commit, and take its first steps."""
        rows: dict[int, dict[int, int | None]] = {
            tablet: {key: next(self.values) for key in some} for tablet in dict.fromkeys((home, *others))
        }
        written = Written({(tablet, key): value for tablet, each in rows.items() for key, value in each.items()})
        self.sent.append(written)

        async def begin() -> None:
            start = self.bench.last if checks else None
            commit = CommitByHand(self.bench, f"t{len(self.commits)}", rows, start)
            one = Performed(commit, written)
            self.commits.append(one)
            await self._go_on(one, steps)

        self._run(begin)

    @rule(number=st.integers(0, 3), times=st.integers(1, 2))
    def go_on(self, number: int, times: int) -> None:
        under_way = [one for one in self.commits if one.is_under_way and one.is_idle]
        if not under_way:
            return
        one = under_way[number % len(under_way)]
        self._run(lambda: self._go_on(one, times))

    async def _go_on(self, one: Performed, times: int) -> None:
        for _ in range(times):
            if one.is_idle and one.is_under_way:
                one.task = asyncio.ensure_future(self._advance(one))
                self.tasks.append(one.task)
            await asyncio.sleep(SETTLES_S)

    async def _advance(self, one: Performed) -> None:
        """Take a commit's next step; one that fails before the decision ends it."""
        try:
            await self._take_step(one)
            one.step += 1
        except (*REFUSED, ShardLost) as failure:
            if one.step < 2 or (one.step == 2 and isinstance(failure, REFUSED)):
                one.written.is_gone = True
            if one.step <= 2:
                one.commit.leave()
                one.is_under_way = False
                await self._resolve(one)

    async def _take_step(self, one: Performed) -> None:
        commit = one.commit
        if one.step == 0:
            for part in commit.parts.values():
                await part.look_ahead()
            await commit.enter()
            self._check_refusals(commit)
        elif one.step == 1:
            self._check_refusals(commit)
            await commit.prepare()
        elif one.step == 2:
            self._check_refusals(commit)
            one.written.timestamp = None
            timestamp = await commit.decide()
            one.written.timestamp = timestamp
        else:
            for number in commit.elsewhere:
                await self.bench.participant(number).finish(commit.transaction, commit.timestamp)
            home = self.bench.participant(commit.home)
            await home.kv.execute([home.decision_command(commit.decision.finished)])
            home.take_decision(commit.decision.finished)
            one.is_under_way = False

    def _check_refusals(self, commit: CommitByHand) -> None:
        own = [commit.parts[number] for number in commit.own]
        refusals = commit.refusals() if not self._is_prepared(commit) else [
            refusal for part in own if (refusal := part.refusal()) is not None
        ]  # fmt: skip
        if refusals:
            raise refusals[0]

    def _is_prepared(self, commit: CommitByHand) -> bool:
        return next(one for one in self.commits if one.commit is commit).step >= 2

    async def _resolve(self, one: Performed) -> None:
        """Have what is prepared of a commit that is not under way written or dropped, as its home has decided."""
        home = self.bench.participant(one.commit.home)
        if not home.is_known or home.is_lost:
            return
        decision = home.decisions.get(one.commit.transaction)
        if decision is not None:
            one.written.timestamp = decision.timestamp
        elif one.written.timestamp is None:
            one.written.is_gone = True
        for number in one.commit.elsewhere:
            try:
                timestamp = None if decision is None else decision.timestamp
                await self.bench.participant(number).finish(one.commit.transaction, timestamp)
            except (*REFUSED, ShardLost):
                continue  # the next recovery tries again

    # Everything else

    @rule(seconds=st.sampled_from((0.01, 0.5, 2.0, 6.0)))
    def pass_time(self, seconds: float) -> None:
        self._run(lambda: asyncio.sleep(seconds))

    @rule(tablet=tablets)
    def flush(self, tablet: int) -> None:
        async def rotate() -> None:
            if self.bench.tablets[tablet].is_serving:
                self.bench.tablets[tablet].rotate()
                self.bench.background.look_soon()

        self._run(rotate)

    @rule(cell=cells, durable=st.integers(0, 3))
    def crash(self, cell: int, durable: int) -> None:
        async def lose() -> None:
            if cell not in self.lost:
                self._lose(cell, durable)

        self._run(lose)

    @rule(cell=cells)
    def hold_the_disk(self, cell: int) -> None:
        """So that a crash finds commits on their way."""
        if cell not in self.lost:
            self.bench.engines[cell].faults.hold()

    @rule(cell=cells)
    def recover(self, cell: int) -> None:
        self._run(lambda: self._recover(cell))

    async def _recover(self, cell: int) -> None:
        self.bench.engines[cell].faults.release()
        await asyncio.sleep(SETTLES_S)
        self._note_losses()
        if cell in self.lost:
            self.bench.engines[cell].faults.clear()
            self.lost.discard(cell)
            await self.bench.reopen(cell)
        for one in self.commits:
            if not one.is_under_way:  # it may have to wait for a part that holds
                self.tasks.append(asyncio.ensure_future(self._resolve(one)))
        await asyncio.sleep(SETTLES_S)

    @rule(cell=cells, after=st.integers(0, 2), stored=st.booleans())
    def lose_later(self, cell: int, after: int, stored: bool) -> None:
        self.bench.engines[cell].faults.lose_next(after=after, stored=stored)

    @rule(cell=cells, after=st.integers(0, 2))
    def refuse_later(self, cell: int, after: int) -> None:
        self.bench.engines[cell].faults.refuse_next(after=after)

    @rule(tablet=tablets)
    def restart_tablet(self, tablet: int) -> None:
        async def restart() -> None:
            is_free = all(one.step == 0 and one.is_idle for one in self.commits if one.is_under_way)
            is_well = CELL_OF[tablet] not in self.lost and not self.bench.engines[CELL_OF[tablet]].faults.is_holding
            if is_free and is_well:
                try:
                    await self.bench.background.leave(self.bench.tablets[tablet])
                    await self.bench.restart_tablet(tablet)
                except (CommitRefused, ShardLost):
                    self._lose(CELL_OF[tablet])

        self._run(restart)

    @rule(tablet=tablets, key=st.integers(0, KEYS - 1))
    def read(self, tablet: int, key: int) -> None:
        """A lookup of now finds what is acknowledged, or what came later."""

        async def look() -> None:
            acknowledged = [
                written.timestamp for written in self.sent
                if written.timestamp is not None and (tablet, key) in written.rows
            ]  # fmt: skip
            if CELL_OF[tablet] in self.lost:
                return
            try:
                value = await self.bench.read(tablet, key)
            except TableError as refusal:
                if refusal.code not in ("ROW_LOCKED", "TABLET_NOT_OPEN", "TABLET_STARTING"):
                    raise
                return
            newest = max(acknowledged, default=0)
            seen = [written for written in self.sent if written.rows.get((tablet, key), 0) == value]
            assert seen or (value is None and not newest), (value, newest)
            assert any(one.timestamp is None or one.timestamp >= newest for one in seen) or not newest

        self._run(look)

    # The end

    def teardown(self) -> None:
        try:
            if hasattr(self, "bench"):
                self._runner.run(self._verify())
        finally:
            self._runner.close()
            self._inline.__exit__(None, None, None)

    async def _verify(self) -> None:
        async with asyncio.timeout(600):
            for engine in self.bench.engines:
                engine.faults.release()
                engine.faults.clear()
            await asyncio.sleep(SETTLES_S)
            while self.lost or any(one.is_under_way for one in self.commits) or self._has_prepared:
                for cell in (0, 1):
                    await self._recover(cell)
                for one in self.commits:
                    await self._go_on(one, 1)
                await asyncio.sleep(1)
            await asyncio.gather(*self.tasks)
            await self._compare()
            for cell in (0, 1):
                self._lose(cell)
                await self._recover(cell)
            await self._compare()
            await self.bench.close()
        assert not self._loop.defects

    @property
    def _has_prepared(self) -> bool:
        return any(self.bench.participant(number).prepared for number in range(len(CELL_OF)))

    async def _compare(self) -> None:
        assert [len(self.bench.participant(number).prepared) for number in range(len(CELL_OF))] == [0, 0, 0]
        stamps = sorted(self.rule.given)
        found = {
            (tablet, key): [await self.bench.read(tablet, key, at) for at in stamps]
            for tablet in range(len(CELL_OF)) for key in range(KEYS)
        }  # fmt: skip
        for written in self.sent:
            if written.timestamp is None and not written.is_gone:
                self._place(written, stamps, found)
        for place, values in found.items():
            wanted: list[int | None] = []
            value: int | None = None
            by_timestamp = {
                one.timestamp: one.rows[place] for one in self.sent if one.timestamp is not None and place in one.rows
            }
            for at in stamps:
                value = by_timestamp.get(at, value)
                wanted.append(value)
            assert values == wanted, (place, list(zip(stamps, values, wanted, strict=True)), self.sent)
        for number in range(len(CELL_OF)):
            decided = self.bench.participant(number).decisions
            committed = {
                one.commit.transaction for one in self.commits
                if one.commit.home == number and one.written.timestamp is not None
            }  # fmt: skip
            assert set(decided) == committed
            assert self.bench.tablets[number].participant(0) is self.bench.participant(number)
            assert not self.bench.tablets[number].writes.locks.is_contended, FIRST_ID + number

    def _place(self, written: Written, stamps: Sequence[int], found: Mapping[Place, Sequence[int | None]]) -> None:
        """Find out whether a write of which nobody knows is stored: all of its rows, or none."""
        values = {place: value for place, value in written.rows.items() if value is not None}
        first = {
            stamps[found[place].index(value)] for place, value in values.items() if value in found[place]
        }  # fmt: skip
        is_whole = all(value in found[place] for place, value in values.items())
        assert len(first) <= 1
        assert not first or is_whole
        if first:
            written.timestamp = first.pop()
        elif values:
            written.is_gone = True
        else:  # deletes alone: they show where a row was before, and no other write explains it
            self._place_delete(written, stamps, found)

    def _place_delete(
        self, written: Written, stamps: Sequence[int], found: Mapping[Place, Sequence[int | None]]
    ) -> None:
        known = {one.timestamp for one in self.sent}
        places = list(written.rows)
        for number, at in enumerate(stamps):
            if at in known or number == 0:
                continue
            if any(found[place][number] is None and found[place][number - 1] is not None for place in places):
                assert all(found[place][number] is None for place in places)
                written.timestamp = at
                return
        written.is_gone = True


CommitStory.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=30, deadline=None)
TestCommitStory = pytest.mark.timeout(600)(CommitStory.TestCase)


