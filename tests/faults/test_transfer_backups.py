"""Backups amid commits over three cells: each that is restored has every transfer whole or not at all."""

import time
from pathlib import Path

import pytest

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.testing import broker
from tests.faults.transfers import SETTINGS, Transfers, check_end, check_sum, load, make_tables

BACKUPS = 3
BETWEEN = 15
"""Transfers that are acknowledged between two backups."""


@pytest.mark.spec("E.12")
@pytest.mark.timeout(300)
def test_a_backup_amid_transfers_over_cells_is_never_torn(tmp_path: Path) -> None:
    ended, known, made = Transfers(), [], []
    with broker(tmp_path / "data", SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        make_tables(calls)
        with load(node, ended, seed=1):
            for number in range(BACKUPS):
                wait_for(ended, BETWEEN * (number + 1))
                known.append(set(ended.acknowledged))
                made.append(Path(calls.ask("POST", "/v1/backups", {"name": f"turn-{number}"})["directory"]))
        check_end(calls, ended)
    for number, directory in enumerate(made):
        restored = tmp_path / f"restored-{number}"
        restore(directory, restored, {}, lambda size: None)
        assert [one for one in examine_directory(restored, {}).found if one.check == "transaction"] == []
        with broker(restored, SETTINGS) as again:
            calls = HttpCalls(lambda node=again: node.http)  # type: ignore[misc]
            check_sum(calls)
            check_end(calls, Transfers(acknowledged=known[number]))


def wait_for(ended: Transfers, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(ended.acknowledged) < count:
        assert time.monotonic() < deadline, "the transfers are too slow"
        time.sleep(0.01)
