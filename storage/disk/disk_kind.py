"""The disk engine as a kind of engine: everything that can be done with a data directory, each part imported when it
is needed."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.storage import MAIN_POOL, parse_pools
from pqbroker.storage.engine import Engine, Shard
from pqbroker.storage.pool_status import Thresholds

if TYPE_CHECKING:
    from pqbroker.storage.disk.offline import OfflineCell


class DiskKind:
    """RocksDB and segment files in a directory; an `EngineKind` that can do every task."""

    name = "disk"
    cure = ""

    def owns(self, data: str) -> bool:
        return True

    def engine(self, data: str, settings: BrokerSettings) -> Engine:
        from pqbroker.storage.disk.backups.backup import BackupDirectory
        from pqbroker.storage.disk.rocks import RocksEngine
        from pqbroker.storage.disk.segment_emptying import EmptyingPace
        from pqbroker.storage.faults import Faults

        return RocksEngine(
            Path(data),
            durability=settings.durability,
            sync_interval_ms=settings.sync_interval_ms,
            segment_bytes=settings.segment_bytes,
            round_bytes_max=settings.round_bytes_max,
            index_blob_bytes_max=settings.index_blob_bytes_max,
            ballast_bytes=settings.ballast_bytes,
            read_only_look_ms=settings.read_only_look_ms,
            read_threads=settings.read_threads,
            pools=_pools(data, settings),
            thresholds=Thresholds(settings.disk_light_yellow_bytes, settings.disk_yellow_bytes),
            emptying=EmptyingPace(settings.emptying_bytes_per_second, settings.emptying_dead_percent),
            faults=Faults() if settings.test_door else None,
            backups=BackupDirectory(Path(settings.backup_dir or Path(data, "backups")), settings.backups_max),
        )

    async def preview(
        self, data: str, settings: BrokerSettings, check: Callable[[Shard], Awaitable[None]]
    ) -> None:
        from pqbroker.storage.disk.preview import preview

        await preview(Path(data), _pools(data, settings), check)

    def look_into(self, path: Path, pools: Mapping[str, Path]) -> "AbstractContextManager[OfflineCell]":
        from pqbroker.storage.disk.offline import look_into

        return look_into(path, pools)

    def check_salvage(self) -> None:
        """A commit log can be salvaged."""

    def restore(
        self, backup: Path, directory: Path, pools: Mapping[str, Path], advance: Callable[[int], None]
    ) -> None:
        from pqbroker.storage.disk.backups.restoring import restore

        restore(backup, directory, pools, advance)


def _pools(data: str, settings: BrokerSettings) -> dict[str, Path]:
    """Return the directories of all pools by name. ConfigError."""
    return {MAIN_POOL: Path(data, "blobs"), **parse_pools(settings.pools)}
