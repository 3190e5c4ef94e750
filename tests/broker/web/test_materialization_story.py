"""Any story of a topic that feeds a sorted table against a naive one: records, pauses, remounts, reshards, losses of
the cell, restarts of tablets. In the end each key has the topic's last value, and each record was read once."""

import random
from typing import Any

import pytest

from tests.broker.web.conftest import Web
from tests.broker.web.test_materializations import ONE, is_running, produce, reopen, rows_of, shown

KEYS = [f"{number:02}" for number in range(30)]
COLUMNS: list[dict[str, Any]] = [
    {"name": "key", "type": "utf8", "sort_order": "ascending", "required": True}, {"name": "value", "type": "utf8"},
]  # fmt: skip
TABLE = "/v1/tables/latest"
STEPS = 25


class Story:
    """One story: records are produced, and tables are changed meanwhile."""

    def __init__(self, web: Web, seed: int) -> None:
        self.web = web
        self.dice = random.Random(seed)
        self.last: dict[str, str | None] = {}
        self.count = self.dead = 0
        self.cells: list[str] = []

    async def produce(self) -> None:
        pairs: list[tuple[str | None, str | None]] = []
        for _ in range(self.dice.randrange(1, 40)):
            self.count += 1
            if self.dice.random() < 0.05:
                pairs.append((None, "lost"))
                self.dead += 1
            else:
                key = self.dice.choice(KEYS)
                self.last[key] = None if self.dice.random() < 0.2 else str(self.count)
                pairs.append((key, self.last[key]))
        await produce(self.web, *pairs)

    async def pause(self) -> None:
        await self.web.ask("POST", f"{ONE}/pause", {})

    async def resume(self) -> None:
        await self.web.ask("POST", f"{ONE}/resume", {})

    async def remount(self) -> None:
        await self.web.ask("POST", f"{TABLE}/unmount", {})
        await self.web.ask("POST", f"{TABLE}/mount", {})

    async def freeze(self) -> None:
        await self.web.ask("POST", f"{TABLE}/freeze", {})
        await self.web.ask("POST", f"{TABLE}/unfreeze", {})

    async def reshard(self) -> None:
        pivots = sorted(self.dice.sample(KEYS, self.dice.randrange(4)))
        await self.web.ask("POST", f"{TABLE}/unmount", {})
        await self.web.ask("POST", f"{TABLE}/reshard", {"pivot_keys": [[], *([pivot] for pivot in pivots)]})
        await self.web.ask("POST", f"{TABLE}/mount", {})

    async def move(self) -> None:
        """Have some of the tablets live in the other cell."""
        _, found = await self.web.ask("GET", f"{TABLE}/tablets")
        first = self.dice.randrange(len(found["tablets"]))
        await self.web.ask("POST", f"{TABLE}/unmount", {})
        where = {"cell_id": self.dice.choice(self.cells), "first_tablet_index": first}
        await self.web.ask("POST", f"{TABLE}/mount", where)
        await self.web.ask("POST", f"{TABLE}/mount", {})

    async def restart(self) -> None:
        _, found = await self.web.ask("GET", f"{TABLE}/tablets")
        await self.web.ask("POST", f"/v1/tablets/{found['tablets'][0]['tablet_id']}/restart", {})

    async def lose(self) -> None:
        await reopen(self.web)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.timeout(120)
async def test_the_table_has_the_topics_last_values_whatever_happens(web: Web, seed: int) -> None:
    story = Story(web, seed)
    await web.ask("POST", "/v1/topics", {"name": "orders", "partitions": 1})
    await web.ask("POST", "/v1/tables", {"path": "//latest", "schema": COLUMNS})
    await web.ask("POST", "/v1/materializations", {"topic": "orders", "table": "latest"})
    _, cell = await web.ask("POST", "/v1/cells", {})
    story.cells = ["0", str(cell["id"])]
    steps = [story.produce] * 10 + [story.move] * 2 + [
        story.pause, story.resume, story.resume, story.remount, story.freeze, story.reshard, story.restart, story.lose,
    ]  # fmt: skip
    for _ in range(STEPS):
        await story.dice.choice(steps)()
    await story.remount()
    await story.resume()
    found = await shown(web, is_running)
    assert found["dead_letter_count"] == story.dead, "each record was read once"
    assert found["partitions"][0]["offset"] == story.count
    rows = await rows_of(web, *({"key": key} for key in KEYS))
    assert [row and row["value"] for row in rows] == [story.last.get(key) for key in KEYS]
