"""Tablets that take no writes: found at each look, logged when that begins and when it ends."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.write_blocks import BLOCK_LINES_MAX, WriteBlocks

FULL = TableError("OUT_OF_TABLET_MEMORY", "Node is out of tablet memory", "Wait for flushes.")


class Tablet:
    """A tablet without rows."""

    is_serving = is_idle = True

    def __init__(self, table: str, refusal: TableError | None) -> None:
        self.config = SimpleNamespace(table=table)
        self.memory_refusal = refusal


def tablets(count: int, refusal: TableError | None) -> Any:
    """Tablets of tables of their own, none frozen."""
    return [(Tablet(f"t{number}", refusal), False) for number in range(count)]


async def test_one_look_logs_so_many_lines_and_counts_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    blocks = WriteBlocks()
    await blocks.look(tablets(BLOCK_LINES_MAX + 5, FULL), 3)
    assert blocks.by_code()["OUT_OF_TABLET_MEMORY"] == BLOCK_LINES_MAX + 5
    assert len(caplog.messages) == BLOCK_LINES_MAX + 1
    assert caplog.messages[-1] == "writes to 5 more tables are refused, those to 0 more are taken again"
    caplog.clear()
    await blocks.look(tablets(BLOCK_LINES_MAX + 5, FULL), 3)
    assert caplog.messages == []
    await blocks.look(tablets(BLOCK_LINES_MAX + 5, None), 3)
    assert len(caplog.messages) == BLOCK_LINES_MAX + 1
    assert "0 more tables are refused, those to 5 more are taken again" in caplog.messages[-1]
    assert +blocks.by_code() == {}
