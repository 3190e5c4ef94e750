"""The audit log: its lines, its files, and what becomes of lines that are too many or find no room."""

import json
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from pqbroker.broker.ground import audit
from pqbroker.broker.ground.audit import AuditFacts, AuditLog
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError

FACTS = AuditFacts("User:ann", "10.0.0.1", "READ", "topic orders", is_allowed=False)


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def opened(path: Path, clock: Clock, **settings: Any) -> AuditLog:
    return AuditLog(BrokerSettings(audit_file=str(path), **settings), clock)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_says_who_what_and_from_where(path: Path, clock: Clock) -> None:
    log = opened(path, clock)
    log.tell(FACTS)
    log.tell(AuditFacts("User:b\nö", "::1", "ALTER", "the cluster", is_allowed=True, detail="x"))
    log.close()
    first, second = lines(path)
    assert first == {
        "time": "2023-11-14T22:13:20.000+00:00", "principal": "User:ann", "host": "10.0.0.1", "operation": "READ",
        "resource": "topic orders", "allowed": False,
    }  # fmt: skip
    assert (second["principal"], second["allowed"], second["detail"]) == ("User:b\nö", True, "x")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_name_that_is_too_long_is_cut(path: Path, clock: Clock) -> None:
    log = opened(path, clock)
    log.tell(AuditFacts("User:ann", "h", "READ", "topic " + "t" * 30_000, is_allowed=False))
    log.close()
    assert len(path.read_bytes()) < 1200


def test_files_are_renamed_when_they_are_full_and_the_oldest_goes(path: Path, clock: Clock) -> None:
    log = opened(path, clock, audit_file_bytes_max=4096, audit_files_max=3, audit_lines_per_second=100_000)
    for _ in range(200):
        log.tell(FACTS)
        clock.now_s += 1
    log.close()
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 4096 for file in files)
    times = [line["time"] for file in reversed(files) for line in lines(file)]
    assert times == sorted(times)


def test_an_earlier_file_is_continued(path: Path, clock: Clock) -> None:
    for _ in range(2):
        log = opened(path, clock)
        log.tell(FACTS)
        log.close()
    assert len(lines(path)) == 2


def test_lines_that_come_too_fast_are_counted_and_others_have_their_share(path: Path, clock: Clock) -> None:
    log = opened(path, clock, audit_lines_per_second=8)
    for _ in range(100):
        log.tell(FACTS)
    log.tell(AuditFacts("User:bob", "10.0.0.1", "READ", "topic t", is_allowed=False))
    clock.now_s += 1
    log.tell(FACTS)
    log.close()
    told = lines(path)
    assert [line.get("principal") for line in told] == ["User:ann", "User:ann", "User:bob", None, "User:ann"]
    assert told[3]["suppressed"] == 98
    assert log.suppressed == 98


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list whose item says whether the disk is full."""
    state = [True]

    class Full(FileIO):
        def write(self, data: Any) -> int:
            written: int = super().write(data[:10] if state[0] else data)
            return written

    monkeypatch.setattr(audit, "FileIO", Full)
    return state


def test_lines_for_which_the_disk_has_no_room_are_counted(path: Path, clock: Clock, full: list[bool]) -> None:
    log = opened(path, clock)
    log.tell(FACTS)
    log.tell(FACTS)
    while log.lost < 2:
        os.sched_yield()
    full[0] = False
    log.tell(FACTS)
    log.close()
    missing, line = lines(path)
    assert missing == {"missing": 2}
    assert line["principal"] == "User:ann"


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(ConfigError, match=r"pqbroker\.audit\.file is .*which cannot be written"):
        opened(tmp_path / "nowhere" / "audit.log", clock)
