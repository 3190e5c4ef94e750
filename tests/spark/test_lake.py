"""The lake's own files, without Spark: written whole or not at all, and what the system refuses said in a line."""

import errno
import os
from pathlib import Path

import pytest

from pqbroker.pipeline.lakes.lake import LANDED, Batch, Lake, LakeError


def fail_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that has no room."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pqbroker.pipeline.lakes.lake.os.fsync", fail)


def test_a_claim_that_a_full_disk_broke_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path, LANDED)
    with monkeypatch.context() as full:
        fail_syncs(full)
        with pytest.raises(LakeError, match=r"No space left on device; make room and start the job again"):
            lake.claim("orders", "id")
    assert not (tmp_path / "topic.json").exists()
    lake.clear()
    assert list((tmp_path / "temporary").iterdir()) == []
    lake.claim("orders", "id")
    with pytest.raises(LakeError, match="holds topic orders"):
        Lake(tmp_path, LANDED).claim("others", "id")


def test_a_batch_that_a_full_disk_broke_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path, LANDED)
    batch = Batch(0, "query", {"orders": {"0": 5}})
    with monkeypatch.context() as full:
        fail_syncs(full)
        with pytest.raises(LakeError, match=r"No space left on device"):
            lake.land(batch, Path.mkdir)
    assert lake.last() is None
    lake.land(batch, Path.mkdir)
    assert lake.last() == batch
