"""A backup of a sorted table that is written, flushed and compacted: chunks and log of one moment, and writes go on."""

import random
import time
from pathlib import Path

import pytest

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.testing import broker
from tests.faults.sorted_kills import PATH, SETTINGS, TABLE, Written, check, load

COMMITS = 60
"""Between two backups: some flushes and merges."""
BACKUPS = 2


def await_commits(written: Written, count: int) -> None:
    wanted = len(written.commits) + count
    while len(written.commits) < wanted:
        time.sleep(0.01)


@pytest.mark.spec("J.1")
@pytest.mark.timeout(240)
def test_a_backup_under_load_has_every_row_at_its_timestamp_and_takes_later_ones(tmp_path: Path) -> None:
    written, backups = Written(), []
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with broker(tmp_path / "data", {**SETTINGS, "pqbroker.backup.dir": str(tmp_path / "backups")}) as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/tables", TABLE)
        with load(node, written, seed):
            for number in range(BACKUPS):
                await_commits(written, COMMITS)
                before = written.some(len(written.commits))
                made = calls.ask("POST", "/v1/backups", {"name": f"b{number}"})
                backups.append((Path(made["directory"]), before))
    for number, (made, before) in enumerate(backups):
        data = tmp_path / f"restored-{number}"
        restore(made, data, {}, lambda size: None)
        found = examine_directory(data, {}).found
        assert not [finding for finding in found if finding.weight is not Weight.HARMLESS], found
        with broker(data, SETTINGS) as node:
            calls = HttpCalls(lambda: node.http)
            check(calls, before)
            later = Written(commits=list(before))
            with load(node, later, seed + number):
                await_commits(later, COMMITS // 2)
            check(calls, later.commits)
            assert calls.ask("GET", PATH)["state"] == "mounted"
        assert examine_directory(data, {}).found == []
