"""Attributes that act in one tablet of a table, at a broker on a disk: after kills, and in a backup of it."""

from pathlib import Path
from typing import Any

import pytest

from pqbroker.client import Client, Column, Table
from pqbroker.testing import FOR_TESTS, Broker, broker
from tests.cli.shell import Shell

SOON = {"min_data_versions": 0, "min_data_ttl": 0, "max_data_ttl": 1000}


def _first_rows(running: Broker) -> list[int | None]:
    with Client(running.http) as client:
        return [one.trimmed_row_count for one in client.table("//shop/orders").tablets()]


def _acting(running: Broker) -> list[Any]:
    with Client(running.http) as client:
        return [one.mounted_attributes["max_data_ttl"] for one in client.table("//shop/orders").tablets()]


def _fill(table: Table) -> None:
    """A row in the body of each tablet, and one behind it, which keeps it from being the last."""
    for _ in range(2):
        table.insert({"id": index, "$tablet_index": index} for index in range(3))
        table.freeze()
        table.unfreeze()


def test_a_pending_age_deletes_rows_of_the_tablet_that_was_mounted_alone_over_kills_and_in_a_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker(tmp_path / "data", FOR_TESTS) as running:
        with Client(running.http) as client:
            table = client.table("//shop/orders")
            table.create([Column("id", "int64")], tablet_count=3)
            _fill(table)
            table.set_attributes(SOON)
            running.kill()
            running.start()
        with Client(running.http) as client:
            client.table("//shop/orders").unmount(0, 0)
            client.table("//shop/orders").mount(0, 0)
            running.kill()
            running.start()
        assert _acting(running) == [1000, 1_800_000, 1_800_000]
        running.advance_clock(3600)
        assert _first_rows(running) == [2, 0, 0]
        shell = Shell(running.kafka, capsys)
        made = shell.raw("backup", "one", "--http", running.http, "--json").object
    restored = shell.raw("restore", made["directory"], str(tmp_path / "new"))
    assert restored.status == 0, restored.errors
    with broker(tmp_path / "new", FOR_TESTS) as again:
        assert _acting(again) == [1000, 1_800_000, 1_800_000]
        again.advance_clock(3600)
        assert _first_rows(again) == [2, 0, 0]
        assert shell.raw("remount-table", "//shop/orders", "--first", "2", "--http", again.http).status == 0
        again.advance_clock(1)
        assert _first_rows(again) == [2, 0, 2]
        assert _acting(again) == [1000, 1_800_000, 1000]
