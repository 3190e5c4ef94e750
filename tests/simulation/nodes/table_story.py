"""A client of tables whose tablets lie at several nodes, and what it was promised.

It writes to a sorted table and an ordered one, in transactions over both and without, one after the other, flushes and
reshards the sorted one, and looks rows up. To the ordered one it also writes batches of a session, in one request or
staged, each until it is taken. Each write has a number, which is the value of all its rows.

answered    all its rows are there, at all nodes, in the ordered table once
refused     none of them is
unanswered  all of them are there, or none
"""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from tests.simulation.ledger import Violation, expect
from tests.simulation.nodes.client import BACK_OFF_S, NodesClient
from tests.simulation.nodes.cluster import Cluster
from tests.simulation.nodes.table_calls import TableCalls, Told

SORTED, ORDERED = "sorted", "ordered"
SESSION, AGAIN_SHARE = "s", 0.3
TABLETS = 4
SPAN = 10
KEYS = TABLETS * SPAN
STEPS_A_SECOND = 1.5
TIMEOUT_MS = 60_000
TRIES = 400
SORTED_SCHEMA = [{"name": "k", "type": "int64", "sort_order": "ascending"}, {"name": "v", "type": "int64"}]
ORDERED_SCHEMA = [{"name": "v", "type": "int64"}]
OPENED_BY = {"unmounted": "mount", "frozen": "unfreeze"}
"""Commands that open a tablet, by its state."""
OK, CREATED, CONFLICT = 200, 201, 409
OWN_FAULT = 500
"""Statuses from this one on do not say whether anything was written."""


@dataclass(slots=True)
class TableWrite:
    """One write: the value of its rows; None: they are deleted."""

    number: int
    keys: list[int]
    tablets: list[int]
    value: int | None
    is_done: bool | None = None
    """None: nobody knows yet."""


@dataclass(slots=True)
class TableBook:
    """Rows that the tables hold."""

    rows: dict[int, int | None] = field(default_factory=lambda: dict.fromkeys(range(KEYS)))
    doubt: TableWrite | None = None
    """The last write, while nobody knows whether it was done."""
    writes: list[TableWrite] = field(default_factory=list)

    def end(self, write: TableWrite, *, is_done: bool | None) -> None:
        """Note the outcome of the last write."""
        write.is_done = is_done
        self.doubt = write if is_done is None and write.keys else None
        if is_done:
            self.rows |= dict.fromkeys(write.keys, write.value)

    def seen(self, found: dict[int, int | None]) -> None:
        """Compare all rows as they are at one timestamp."""
        if self.doubt is not None:
            after = dict.fromkeys(self.doubt.keys, self.doubt.value)
            if found != self.rows and found == self.rows | after:
                self.doubt.is_done = True
                self.rows = found
            elif any(self.rows[key] != value for key, value in after.items()):
                self.doubt.is_done = False
            self.doubt = None
        wrong = {key: (value, found[key]) for key, value in self.rows.items() if found[key] != value}
        expect(not wrong, f"keys of the sorted table have others than their values: {wrong}")

    def ordered(self, found: list[list[int]]) -> None:
        """Compare the rows of the ordered table, tablet by tablet."""
        for write in self.writes:
            counts = {found[index].count(write.number) for index in write.tablets}
            if write.tablets:
                right: tuple[set[int], ...] = ({0}, {1}) if write.is_done is None else ({int(write.is_done)},)
                expect(counts in right, f"rows of {write} are in its tablets {counts} times")
        for index, numbers in enumerate(found):
            stray = set(numbers) - {write.number for write in self.writes if index in write.tablets}
            expect(not stray, f"tablet {index} of the ordered table has rows {stray}, which nobody wrote there")
            expect(numbers == sorted(numbers), f"tablet {index} of the ordered table has {numbers}")


class Run(Protocol):
    """The run that all clients are part of."""

    @property
    def is_ending(self) -> bool:
        """Return True once nothing new is begun."""


class TableStory:
    """Lives the client's life."""

    def __init__(self, cluster: Cluster, client: NodesClient, chance: Random, counts: Counter[str]) -> None:
        self.book = TableBook()
        self._counts = counts
        self._calls = TableCalls(cluster)
        self._client = client
        self._chance = chance
        self._tablets = TABLETS

    async def run(self, run: Run) -> None:
        """Live until the run ends."""
        pivots: list[list[int]] = [[], *([SPAN * index] for index in range(1, TABLETS))]
        await self._create({"path": f"//{SORTED}", "schema": SORTED_SCHEMA, "pivot_keys": pivots})
        await self._create({"path": f"//{ORDERED}", "schema": ORDERED_SCHEMA, "tablet_count": TABLETS})
        steps = [self._write] * 5 + [self._transact] * 5 + [self._flush, self._reshard]
        steps += [self._insert_batch] * 2 + [self._stage_batch] * 2
        while not run.is_ending:
            await asyncio.sleep(self._chance.expovariate(STEPS_A_SECOND))
            await self._chance.choice(steps)()
            if self.book.doubt is not None or self._chance.random() < 0.2:
                await self.look()
        await self.look()

    async def look(self) -> None:
        """Look all rows of the sorted table up, at one timestamp; again until its tablets are mounted and served."""
        body = {"keys": [{"k": key} for key in range(KEYS)]}
        for _ in range(TRIES):
            told = await self._calls.ask("POST tables/{name}/lookup", body, name=SORTED)
            if told is not None and told[0] == OK:
                rows = {row["k"]: row["v"] for row in told[1]["rows"] if row is not None}
                self.book.seen({key: rows.get(key) for key in range(KEYS)})
                return
            if told is not None and told[0] < OWN_FAULT:
                await self._mount()
            await asyncio.sleep(BACK_OFF_S)
        raise Violation(f"rows of the sorted table cannot be looked up: {told}")

    async def verify(self) -> None:
        """Compare all rows of both tables. All nodes serve."""
        await self.look()
        self.book.ordered([await self._ordered_rows(index) for index in range(TABLETS)])

    async def _ordered_rows(self, index: int) -> list[int]:
        numbers, offset = list[int](), 0
        for _ in range(TRIES):
            found = await self._client.read((ORDERED, index), offset, is_committed=True)
            if found is not None:
                numbers += [json.loads(value)["v"] for at, value in found[0] if at >= offset]
                offset = found[1]
                if offset >= found[2]:
                    return numbers
            await asyncio.sleep(BACK_OFF_S if found is None else 0)
        raise Violation(f"tablet {index} of the ordered table cannot be read")

    async def _create(self, body: Any) -> None:
        for _ in range(TRIES):
            told = await self._calls.ask("POST tables", body)
            if told is not None and (told[0] == CREATED or _exists(told)):
                return
            await asyncio.sleep(BACK_OFF_S)
        raise Violation(f"a table cannot be made: {told}")

    def _new(self, *, has_ordered: bool) -> TableWrite:
        number = len(self.book.writes)
        first = self._chance.randrange(KEYS)
        keys = sorted({(first + SPAN * each) % KEYS for each in range(self._chance.randint(1, TABLETS))})
        tablets = [index for index in range(TABLETS) if has_ordered and self._chance.random() < 0.5]
        value = None if not has_ordered and self._chance.random() < 0.2 else number
        write = TableWrite(number, keys, tablets, value)
        self.book.writes.append(write)
        return write

    async def _write(self) -> None:
        """Insert, or delete, rows at several nodes without a transaction."""
        write = self._new(has_ordered=False)
        keys = [{"k": key} for key in write.keys]
        if write.value is None:
            told = await self._calls.ask("DELETE tables/{name}/rows", {"keys": keys}, name=SORTED)
        else:
            rows = [{**key, "v": write.value} for key in keys]
            told = await self._calls.ask("POST tables/{name}/rows", {"rows": rows}, name=SORTED)
        self.book.end(write, is_done=_is_done(told))
        self._counts["table writes"] += told is not None and told[0] == OK

    async def _transact(self) -> None:
        """Commit a transaction over both tables; send the commit again until it is known what became of it."""
        begun = await self._calls.ask("POST transactions", {"timeout_ms": TIMEOUT_MS})
        if begun is None or begun[0] != CREATED:
            return
        write = self._new(has_ordered=True)
        rows = [{"k": key, "v": write.value} for key in write.keys]
        writes: list[Any] = [{"table": SORTED, "rows": rows}]
        if write.tablets:
            ordered = [{"v": write.value, "$tablet_index": index} for index in write.tablets]
            writes.append({"table": ORDERED, "rows": ordered})
        body, name = {"writes": writes}, begun[1]["transaction"]
        for _ in range(TRIES):
            told = await self._calls.ask("POST transactions/{transaction}/commit", body, transaction=name)
            is_done = _is_done(told)
            if is_done is not None:
                break
            await asyncio.sleep(BACK_OFF_S)
        self.book.end(write, is_done=is_done)
        self._counts["table transactions"] += bool(is_done)

    async def _insert_batch(self) -> None:
        """Insert rows of a session into the ordered table."""
        write = self._new_batch()
        await self._until_taken(write, [("POST tables/{name}/rows", {"rows": _ordered(write)})])

    async def _stage_batch(self) -> None:
        """Stage rows of a session, in two requests, and commit them."""
        write = self._new_batch()
        rows = _ordered(write)
        halves = [some for some in (rows[::2], rows[1::2]) if some]
        staged = [("POST tables/{name}/staged-rows", {"rows": some}) for some in halves]
        await self._until_taken(write, [*staged, ("POST tables/{name}/staged-rows/commit", {})])

    def _new_batch(self) -> TableWrite:
        tablets = self._chance.sample(range(TABLETS), self._chance.randint(1, TABLETS))
        write = TableWrite(len(self.book.writes), [], sorted(tablets), len(self.book.writes))
        self.book.writes.append(write)
        return write

    async def _until_taken(self, write: TableWrite, requests: list[tuple[str, Any]]) -> None:
        """Send the requests of a batch again and again until it is taken, and some another time behind that."""
        for _ in range(TRIES):
            told = await self._send_batch(write, requests)
            if told is not None and told[0] == OK and told[1].get("done", True):
                break
            expect(told is None or told[0] >= OWN_FAULT or told[0] == OK, f"{write} is refused: {told}")
            await asyncio.sleep(BACK_OFF_S)
        else:
            raise Violation(f"{write} is not taken: {told}")
        self.book.end(write, is_done=True)
        self._counts["table batches"] += 1
        if self._chance.random() < AGAIN_SHARE:
            told = await self._send_batch(write, requests)
            is_taken_again = told is not None and told[0] == OK and not told[1]["duplicate"]
            expect(not is_taken_again, f"{write} is taken again: {told}")

    async def _send_batch(self, write: TableWrite, requests: list[tuple[str, Any]]) -> Told | None:
        """Send the requests of a batch, the last one with the pieces that those before have staged."""
        pieces, told = list[str](), None
        for route, body in requests:
            more = {} if "rows" in body else {"pieces": pieces}
            told = await self._calls.ask(
                route, {**body, **more, "session": SESSION, "sequence": write.number}, name=ORDERED
            )
            if told is None or told[0] != OK:
                break
            pieces += [piece["name"] for piece in told[1].get("pieces", ())]
        return told

    async def _flush(self) -> None:
        """Have the stores written out."""
        if await self._command("freeze") and await self._command("unfreeze"):
            self._counts["flushes"] += 1

    async def _reshard(self) -> None:
        """Split a tablet, or join two, while the others stay mounted."""
        count = self._tablets
        first = self._chance.randrange(count - 1) if count > TABLETS else self._chance.randrange(count)
        last = first + 1 if count > TABLETS else first
        chosen = {"first_tablet_index": first, "last_tablet_index": last}
        if await self._command("unmount", chosen):
            told = await self._calls.ask(
                "POST tables/{name}/reshard", {**chosen, "tablet_count": 1 if count > TABLETS else 2}, name=SORTED
            )
            self._counts["reshards"] += told is not None and told[0] == OK
        await self._mount()

    async def _mount(self) -> None:
        """Have each tablet mounted, as far as that can be now; a command for all is refused where one does not allow
        it."""
        told = await self._calls.ask("GET tables/{name}/tablets", name=SORTED)
        if told is None or told[0] != OK:
            return
        tablets = told[1]["tablets"]
        self._tablets = len(tablets)
        for tablet in tablets:
            verb = OPENED_BY.get(tablet["state"])
            if verb is not None:
                chosen = {"first_tablet_index": tablet["index"], "last_tablet_index": tablet["index"]}
                await self._command(verb, chosen)

    async def _command(self, verb: str, chosen: Any = None) -> bool:
        told = await self._calls.ask("POST tables/{name}/" + verb, chosen or {}, name=SORTED)
        return told is not None and told[0] == OK


def _exists(told: Told) -> bool:
    return bool(told[0] == CONFLICT and told[1]["error"]["code"] == "TOPIC_ALREADY_EXISTS")


def _ordered(write: TableWrite) -> list[Any]:
    return [{"v": write.number, "$tablet_index": index} for index in write.tablets]


def _is_done(told: Told | None) -> bool | None:
    """Return what an answer says of its write; None: nothing."""
    if told is None or told[0] >= OWN_FAULT:
        return None
    return told[0] == OK
