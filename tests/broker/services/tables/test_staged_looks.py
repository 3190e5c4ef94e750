"""Staged rows that nobody commits are looked after by the node that commits the batches of their table."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.broker.services.tables import staging
from pqbroker.broker.services.topics import staged_rows
from pqbroker.conf.broker import BrokerSettings


async def test_the_first_node_leaves_tables_in_one_cell_to_the_node_that_runs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = {b"here": {0}, b"in one cell": {1}, b"in two cells": {1, 2}}
    topics = {one: SimpleNamespace(record=SimpleNamespace(topic_id=one, name=one.decode())) for one in cells}
    caller: Any = SimpleNamespace(
        node=SimpleNamespace(cell=SimpleNamespace(current=SimpleNamespace(topics=SimpleNamespace(by_id=topics.get))))
    )
    looks: list[bytes] = []

    async def elsewhere(_: object) -> set[bytes]:
        return {b"in one cell", b"in two cells", b"deleted meanwhile"}

    async def look_after(topic: Any, before_ms: int, find: object) -> None:
        looks.append(topic.record.topic_id)

    monkeypatch.setattr(staging, "holding_elsewhere", elsewhere)
    monkeypatch.setattr(staging, "cells_of", lambda topic: cells[topic.record.topic_id])
    monkeypatch.setattr(staged_rows, "look_after", look_after)
    here: Any = topics[b"here"]
    await staging.look_after_staged(caller, [here], 0)
    assert sorted(looks) == [b"here", b"in two cells"]


@pytest.mark.parametrize(("mirrored", "looked_after"), [(object(), ["one"]), (None, ["one", "two"])])
async def test_another_node_leaves_tables_in_several_cells_to_the_first_one(
    monkeypatch: pytest.MonkeyPatch, mirrored: Any, looked_after: list[str]
) -> None:
    looks: list[str] = []

    async def look_after(topic: Any, before_ms: int) -> None:
        looks.append(topic.record.name)

    async def retain(unread_since: object) -> list[Any]:
        return [table("one", (0, 0)), table("two", (0, 1))]

    monkeypatch.setattr(staged_rows, "look_after", look_after)
    engine: Any = None
    owner = CellOwner(engine, BrokerSettings(), lambda: 0, CellPlace(engine, mirrored=mirrored))
    in_force = SimpleNamespace(producer_id_expiration_ms=0)
    opened: Any = SimpleNamespace(
        cell=SimpleNamespace(reading_only="", quarantine=SimpleNamespace(is_damaged=True)),
        coordinators=SimpleNamespace(unread_since=None), settings=SimpleNamespace(in_force=in_force),
        topics=SimpleNamespace(retain=retain),
    )  # fmt: skip
    owner.current = opened
    await owner.retain()
    assert looks == looked_after


def table(name: str, cells: Sequence[int]) -> Any:
    """Return as much of a table as tells its cells, one a tablet, all of them open."""
    record = SimpleNamespace(name=name, tablets=cells, cell_of=cells.__getitem__)
    return SimpleNamespace(record=record, partitions=[SimpleNamespace(is_loaded=True) for _ in cells])
