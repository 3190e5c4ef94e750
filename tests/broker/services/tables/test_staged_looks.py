"""Staged rows that nobody commits are looked after by the node that commits the batches of their table."""

from types import SimpleNamespace
from typing import Any

import pytest

from pqbroker.broker.services.tables import staging
from pqbroker.broker.services.topics import staged_rows


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
