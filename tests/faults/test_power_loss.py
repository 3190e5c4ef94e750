"""Ten power cuts, or $PQBROKER_TESTS_POWER_CUTS of them: what was acknowledged was synced, names and all."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.power.cuts import record, run
from tests.faults.power.disk import Change, Disk, File, left_of
from tests.faults.power.recording import build, environment, events, reason_not_to_record
from tests.support.forked_brokers import executed

pytestmark = pytest.mark.spec("J.1")

CUTS = int(os.environ.get("PQBROKER_TESTS_POWER_CUTS", "10"))
SERVED = 1
_WRITES = """
import os, sys
flags = os.O_WRONLY | os.O_CREAT
for name, more in (("opened", os.O_DSYNC), ("asked", 0), ("short", 0), ("not", 0)):
    file = os.open(f"{sys.argv[1]}/{name}", flags | more)
    os.pwritev(file, [b"ab", b"cd"], 0, {"asked": os.RWF_DSYNC}.get(name, 0))
    if name == "short":
        os.pwritev(file, [b"AB"], 0, os.RWF_DSYNC)
        os.pwritev(file, [b"CD"], 2)
    os.close(file)
"""


@pytest.mark.timeout(120 + 2 * CUTS)
@pytest.mark.skipif(reason_not_to_record() is not None, reason=reason_not_to_record() or "")
def test_nothing_acknowledged_is_lost_by_power_cuts(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with executed():  # a process that was forked under the first life's recorder would record all of them as that one
        recorded = record(tmp_path, seed)
    outcome = run(tmp_path, recorded, cuts=CUTS, served=SERVED, seed=seed)
    assert outcome.acknowledged > CUTS
    shutil.rmtree(tmp_path)  # after a failure it stays: the recording, and what the cut left


@pytest.mark.skipif(reason_not_to_record() is not None, reason=reason_not_to_record() or "")
def test_a_write_that_syncs_is_recorded_as_synced_and_no_other_one(tmp_path: Path) -> None:
    root, into = tmp_path / "disk", tmp_path / "events"
    root.mkdir()
    variables = os.environ | environment(build(tmp_path), root, into, None)
    subprocess.run([sys.executable, "-c", _WRITES, str(root)], env=variables, check=True)
    disk = Disk(root)
    for event in events(into):
        disk.take(event)
    files = {name: item.history for name, item in disk.root.history.live.items() if isinstance(item, File)}
    assert {name: bytes(history.live) for name, history in files.items()} == {
        "opened": b"abcd", "asked": b"abcd", "short": b"ABCD", "not": b"abcd",
    }  # fmt: skip
    assert {name: bytes(history.synced) for name, history in files.items()} == {
        "opened": b"abcd", "asked": b"abcd", "short": b"ABcd", "not": b"",
    }  # fmt: skip


def test_a_unit_is_written_out_with_all_that_it_holds() -> None:
    file = File()
    for position, data in ((0, b"a" * 700), (700, b"b" * 300), (5000, b"c" * 10)):
        file.history.change(Change(position, data))
    seen = {left_of(file, random.Random(seed), 0.5) for seed in range(200)}
    assert all(left[600:700] == b"a" * 100 for left in seen if left[700:1000] == b"b" * 300)
    assert {left[699:701] for left in seen if len(left) >= 1000} >= {b"ab", b"a\0"}
    assert any(left.endswith(b"c" * 10) and not left.strip(b"\0c") for left in seen)
