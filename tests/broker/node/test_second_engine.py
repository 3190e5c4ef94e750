"""A second engine: a broker starts on it, and what it cannot do is refused with its name and a cure, at every door."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from pqbroker.broker.node.server import Server
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage import engine_kinds
from pqbroker.storage.engine import BackupFacts, Engine, EngineCannot, EngineTask, Opener, Shard
from pqbroker.storage.engine_kinds import EngineKind, kind_of
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import ENGINE_BYTES
from tests.cli.shell import Shell

CURE = "copy the bucket"
MARK = "bucket"
"""A file in the directories of this engine."""


class BucketShard:
    """A shard in memory, under another engine's name."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    async def backup(
        self, name: str, others: Mapping[str, Shard] | None = None,
        during: AbstractAsyncContextManager[None] | None = None,
    ) -> BackupFacts:
        raise EngineCannot("bucket", EngineTask.BACK_UP, CURE)


class BucketEngine:
    def __init__(self, within: Engine) -> None:
        self._within = within

    async def open(self) -> Shard:
        return cast(Shard, BucketShard(await self._within.open()))

    def for_reading(self, cause: str) -> Opener | None:
        return None

    def sibling(self, name: str, *, must_exist: bool) -> Engine:
        return BucketEngine(self._within.sibling(name, must_exist=must_exist))

    async def remove_sibling(self, name: str) -> None:
        await self._within.remove_sibling(name)


class BucketKind(EngineKind):
    """It starts brokers, and defines nothing else."""

    name = "bucket"
    cure = CURE

    def owns(self, data: str) -> bool:
        return Path(data, MARK).exists()

    def engine(self, data: str, settings: BrokerSettings) -> Engine:
        return BucketEngine(MemoryEngine(ENGINE_BYTES))

    async def preview(
        self, data: str, settings: BrokerSettings, check: Callable[[Shard], Awaitable[None]]
    ) -> None: ...


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engine_kinds, "ENGINE_KINDS", (BucketKind(), *engine_kinds.ENGINE_KINDS))
    (tmp_path / MARK).touch()
    return tmp_path


async def test_a_broker_starts_on_it_and_a_backup_is_refused_by_its_name(bucket: Path) -> None:
    settings, data = BrokerSettings(), str(bucket)
    server = Server(settings, kind_of(data).engine(data, settings), Address("127.0.0.1", 0), Address("127.0.0.1", 0))
    await server.start()
    try:
        opened = server.node.cell.current
        await opened.topics.create("t", 2, {})
        async with aiohttp.ClientSession(f"http://{server.http_address}") as session:
            async with session.post("/v1/backups", json={"name": "b"}) as answer:
                assert answer.status == 501
                assert (await answer.json())["error"] == {
                    "code": "ENGINE_CANNOT",
                    "message": f"the bucket engine cannot make a backup: {CURE}",
                    "cure": CURE,
                }
            async with session.get("/v1/segments") as answer:
                assert answer.status == 200
                assert (await answer.json())["segments"] == []
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("arguments", "task"),
    [
        (["doctor"], "verify its data"),
        (["doctor", "--salvage"], "salvage its data"),
        (["doctor", "--salvage", "--accept"], "salvage its data"),
        (["restore", "new"], "restore a backup"),
    ],
)
def test_commands_say_what_it_cannot(
    bucket: Path, arguments: list[str], task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *more = arguments
    said = Shell("", capsys).raw(command, str(bucket), *more)
    assert said.status == 1
    assert f"the bucket engine cannot {task}: {CURE}" in said.errors


def test_memory_and_directories_have_kinds_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kind_of(":memory:").name == "memory"
    assert kind_of(str(tmp_path)).name == "disk"
    said = Shell("", capsys).raw("doctor", ":memory:")
    assert (said.status, "the memory engine cannot verify its data" in said.errors) == (1, True)
