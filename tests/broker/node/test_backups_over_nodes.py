"""A backup of a broker of two nodes, made while both are written to."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pqbroker.broker.node import backup_calls
from pqbroker.broker.node.backup_calls import BackupCalls, CopyElsewhere
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight
from pqbroker.storage.copy_steps import CopiedBytes, CopySteps
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.storage.engine import BackupRefused
from pqbroker.storage.ids import CellId
from pqbroker.testing import broker
from tests.broker.conftest import until
from tests.broker.node.test_groups_over_nodes import PARTITIONS, PATIENCE_S, at_node
from tests.broker.node.test_http_over_nodes import call, spread
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    with several_nodes(tmp_path_factory.mktemp("nodes"), {"pqbroker.node.silence.ms": "10000"}) as running:
        yield running


class Writing:
    """Numbers to all partitions of a topic, in order, until the block ends."""

    def __init__(self, nodes: SeveralNodes, topic: str) -> None:
        self._producer = Producer({**at_node(nodes, 1), "enable.idempotence": True, "linger.ms": 1})
        self._topic = topic
        self._ends = threading.Event()
        self.acknowledged = [0] * PARTITIONS
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0

    def _write(self) -> None:
        number = 0
        while not self._ends.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, f"{number}", partition=partition, on_delivery=self._take)
            number += 1
            self._producer.poll(0.01)

    def _take(self, error: Any, message: Any) -> None:
        assert error is None
        self.acknowledged[message.partition()] += 1


def test_a_backup_has_the_cells_of_all_nodes_and_is_restored(nodes: SeveralNodes, tmp_path: Path) -> None:
    assert spread(nodes, "copied")
    with Writing(nodes, "copied") as writing:
        wait_until(lambda: min(writing.acknowledged) > 20, "records in each partition", PATIENCE_S)
        before = list(writing.acknowledged)
        status, made = call(nodes, "backups", {"name": "one"})
        assert status == 201, made
        after_backup = list(writing.acknowledged)
    assert made["files"] > 0
    data = tmp_path / "restored"
    restore(Path(made["directory"]), data, {}, lambda size: None)
    for place in (Path(made["directory"]), data):
        findings = examine_directory(place, {}).found
        assert [one for one in findings if one.weight is not Weight.HARMLESS] == []
    with broker(data) as node:
        for partition in range(PARTITIONS):
            found = read(node.kafka, partition)
            assert found == [f"{number}" for number in range(len(found))]
            assert len(found) >= before[partition], (before, after_backup)


def test_a_backup_is_refused_by_name_and_leaves_nothing_when_a_node_does_not_answer(nodes: SeveralNodes) -> None:
    assert spread(nodes, "silent")
    backups = nodes.directory / "backups"
    known = set(os.listdir(backups)) if backups.exists() else set()
    os.kill(nodes.pids()[2], signal.SIGSTOP)  # until its parent kills it
    status, refused = call(nodes, "backups", {"name": "two"})
    assert (status, refused["error"]["code"]) == (409, "BACKUP_REFUSED"), refused
    assert "node 2" in refused["error"]["message"]
    assert set(os.listdir(backups)) == known
    wait_until(lambda: call(nodes, "backups", {"name": "three"})[0] == 201, "a backup of all nodes", PATIENCE_S)


def test_the_doctor_refuses_a_directory_whose_nodes_run(nodes: SeveralNodes) -> None:
    command = [sys.executable, "-P", "-m", "pqbroker", "doctor", str(nodes.directory)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode != 0
    assert "in use" in ran.stderr + ran.stdout, (ran.stdout, ran.stderr)


def read(address: str, partition: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("copied", partition, 0)])
    found: list[str] = []
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


class Copied:
    """A cell that is copied step by step. `refuses`: instead of its moment."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.moments: list[float] = []
        self.is_cancelled = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def copy_into(self, name: str, steps: CopySteps) -> CopiedBytes:
        try:
            steps.begun.set()
            await steps.may_take.wait()
            if self.refuses:
                raise BackupRefused("no room")
            self.moments.append(time.monotonic())
            steps.taken.set()
            await steps.may_end.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        return CopiedBytes(3, 20, 100)


def calls_over(cell: Copied) -> tuple[BackupCalls, CopyElsewhere]:
    """Return both ends, over a link that writes JSON."""
    host = SimpleNamespace(cell=cell)
    cells = SimpleNamespace(host=lambda asked: host if asked == 2 else None)
    served = BackupCalls(lambda: cast(Any, SimpleNamespace(cells=cells)))

    async def ask(asked: Any) -> Any:
        try:
            return json.loads(json.dumps(await served.answer(json.loads(json.dumps(asked)))))
        except PeerRefused as refused:
            raise BackupRefused(str(refused)) from refused

    return served, CopyElsewhere(ask, CellId(2))


async def test_a_copy_elsewhere_waits_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_calls, "ASKED_AGAIN_S", 0.01)
    cell, steps = Copied(), CopySteps()
    _, elsewhere = calls_over(cell)
    copying = asyncio.create_task(elsewhere.copy("one", steps))
    await steps.begun.wait()
    assert cell.moments == []
    steps.may_take.set()
    await steps.taken.wait()
    assert len(cell.moments) == 1
    steps.may_end.set()
    assert await copying == CopiedBytes(3, 20, 100)


async def test_a_copy_elsewhere_that_is_given_up_ends_there_too() -> None:
    cell, steps = Copied(), CopySteps()
    _, elsewhere = calls_over(cell)
    copying = asyncio.create_task(elsewhere.copy("one", steps))
    await steps.begun.wait()
    copying.cancel()
    await asyncio.wait([copying])
    await until(lambda: cell.is_cancelled)


async def test_a_copy_that_nobody_asks_for_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_calls, "LEFT_S", 0.01)
    cell = Copied()
    served, _ = calls_over(cell)
    assert await served.answer(["begun", "one", 2]) is True
    await until(lambda: cell.is_cancelled)


async def test_a_copy_elsewhere_that_fails_says_why() -> None:
    steps = CopySteps()
    _, elsewhere = calls_over(Copied(refuses=True))
    steps.may_take.set()
    with pytest.raises(BackupRefused, match="no room"):
        await elsewhere.copy("one", steps)


@pytest.mark.parametrize("asked", [None, [], [5, 6], ["begun", "one"], ["begun", "one", "x"], ["taken", "one", 2]])
async def test_what_is_no_step_is_refused(asked: Any) -> None:
    served, _ = calls_over(Copied())
    with pytest.raises(PeerRefused):
        await served.answer(asked)


async def test_a_cell_that_is_not_open_there_is_named() -> None:
    served, _ = calls_over(Copied())
    with pytest.raises(PeerRefused, match="cell 3 is not open here"):
        await served.answer(["begun", "one", 3])
