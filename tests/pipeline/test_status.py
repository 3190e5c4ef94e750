"""`status` reads the directories of jobs, whatever lies in them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pqbroker.pipeline.__main__ import main
from pqbroker.pipeline.lakes.lake import LANDED, Batch, Lake
from pqbroker.pipeline.relays.journal import Begun, Journal
from pqbroker.pipeline.state import find_jobs

HOLD = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"


def make_lake(directory: Path, batches: int) -> None:
    """A lake of a topic with so many batches, the last of them two hours old."""
    lake = Lake(directory, LANDED)
    lake.claim("orders", "id")
    for number in range(batches):
        lake.land(Batch(number, "query", {"orders": {"0": number}}), Path.mkdir)
        os.utime(directory / "data" / f"batch={number}", (time.time() - 7200,) * 2)


def test_every_job_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_lake(tmp_path / "lake", 12)
    journal = Journal(tmp_path / "state")
    journal.claim({"job of": "copy", "topic": "orders", "topic id": "a", "target": "others", "target id": "b"})
    journal.note(Begun(3, {"0": 1}))
    (tmp_path / "unrelated").mkdir()
    assert main(["status", str(tmp_path)]) == 0
    lake, relay = capsys.readouterr().out.splitlines()
    assert lake == f"{tmp_path / 'lake'}: land orders, stopped, batch 11 done 2 h ago"
    assert relay.startswith(f"{tmp_path / 'state'}: copy orders to others, stopped, batch 2 done 0 s ago")


def test_no_job_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(tmp_path), str(tmp_path / "missing")]) == 0
    assert capsys.readouterr().out == "no jobs; name the directories they were given\n"


@pytest.mark.parametrize("content", ["", "[]", "{", '"text"', '{"topic": "orders"}'])
def test_files_that_are_none_of_a_job_are_passed_over(tmp_path: Path, content: str) -> None:
    (tmp_path / "job.json").write_text(content)
    assert list(find_jobs(tmp_path)) == []


def test_a_job_that_holds_its_lock_runs(tmp_path: Path) -> None:
    make_lake(tmp_path, 0)
    (tmp_path / "lock").touch()
    assert [job.is_running for job in find_jobs(tmp_path)] == [False]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert [(job.is_running, job.batch) for job in find_jobs(tmp_path)] == [(True, None)]
    holder.communicate(b"\n")
    assert [job.is_running for job in find_jobs(tmp_path)] == [False]
