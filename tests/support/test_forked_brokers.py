"""Forked brokers end as executed ones do, and a broker whose environment is read early is executed."""

from pathlib import Path

import pytest

from pqbroker.testing import MEMORY, BrokerFailedError, broker
from tests.support.forked_brokers import executed


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")


def test_a_broker_is_forked_again_after_each_end() -> None:
    with broker(MEMORY) as running:
        assert "pqbroker" not in command_of(running.pid)
        assert Path(f"/proc/{running.pid}/environ").exists()
        running.kill()
        assert not running.running
        running.restart()
        assert running.running
        assert running.log.count(" opened ") == 2


def test_why_a_broker_does_not_start_is_in_its_log() -> None:
    told = r"exited with 2 before it was ready(.|\n)*unknown setting no\.such\.setting"
    with pytest.raises(BrokerFailedError, match=told), broker(MEMORY, {"no.such.setting": "1"}):
        pass


def test_a_broker_is_executed_on_request_and_for_variables_that_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    with executed(), broker(MEMORY) as running:
        assert "pqbroker" in command_of(running.pid)
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    with broker(MEMORY) as running:
        assert "pqbroker" in command_of(running.pid)
