"""Passes of the cleaner over a compacted partition in memory, one at a time; others act at its messages."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pqbroker.broker.services.cells.cell_owner import open_cell
from pqbroker.broker.services.cleaning.cleaning_pass import CleaningPass, PassSettings, PassShare
from pqbroker.broker.services.cleaning.passes import PassFailed, PassRecord, PassStopped
from pqbroker.pq.log.cleaning_windows import CleaningLimits, when_due
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import Record, batches, decode_records, encode_batch
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import ShardLost
from pqbroker.storage.faults import Faults
from pqbroker.tables.serving.share import WriteRate
from tests.pq.rig import MIB, Node, read
from tests.support.inline_cleaning import CleaningWorkers

RETENTION_MS: Final = 60_000
SETTINGS: Final = PassSettings(MIB, 0.9, MIB, RETENTION_MS, 1.0)
LIMITS: Final = CleaningLimits(0.5, 0, 1 << 62)
CONFIG: Final = {"cleanup.policy": "compact", "retention.ms": "-1", "pq.low.watermark.bytes": str(1 << 22)}
Pair = tuple[bytes | None, bytes | None]
Act = Callable[[str], Awaitable[None]]


class DiskNode(Node):
    """The same over a cell on disk; `restart` is a kill and a start."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.faults = Faults()

    async def start(self) -> "DiskNode":
        engine = RocksEngine(self._path, ballast_bytes=0, segment_bytes=1 << 20, faults=self.faults)
        self.opened = await open_cell(engine, self.settings, self.clock)
        self.topics = self.opened.topics
        return self

    async def stop(self) -> None:
        for end in (self.opened.stop, self.opened.cell.close):
            with suppress(ShardLost):
                await end()

    async def restart(self) -> None:
        await self.stop()
        self.faults.clear()
        await self.start()


class Bench:
    """A node whose topic t is compacted."""

    def __init__(self, node: Node | None = None) -> None:
        self.node = node or Node()
        self.acts: Sequence[Act] = ()
        """Called with the kind of each message of a worker, before the broker gets it."""

    async def start(self, **config: str) -> "Bench":
        await self.node.start()
        await self.node.topic(config={**CONFIG, **{name.replace("_", "."): text for name, text in config.items()}})
        return self

    @property
    def server(self) -> PartitionServer:
        return self.node.partition()

    async def write(self, *pairs: Pair, codec: int = 0) -> int:
        """Write one batch; its base offset."""
        stamp = self.node.clock()
        view = memoryview(encode_batch([Record(0, stamp, key, value) for key, value in pairs], codec=codec))
        return (await self.server.write(view, check_produced(view, 1 << 30))).base_offset

    async def bodies(self, *bodies: Sequence[Pair]) -> None:
        """Write bodies of one batch each."""
        for pairs in bodies:
            await self.write(*pairs)
            await self.server.flush()

    async def clean(self, settings: PassSettings = SETTINGS, bound: int | None = None) -> PassRecord:
        """Let one pass go over all bodies; why it failed, if it did, is in its record."""
        server = self.server
        state, now_ms = server.state, self.node.clock()
        due = when_due(state.bodies, state.cleaned, state.end_offset, LIMITS, now_ms, is_forced=True)
        record = PassRecord(
            "t", 0, "forced", now_ms, due.body_count, due.bytes, due.dirty_bytes, due.bound if bound is None else bound
        )
        rate = WriteRate(1 << 60)
        share = PassShare(CleaningWorkers(self._meet), rate, rate)  # type: ignore[arg-type]
        try:
            await CleaningPass(server, share, settings, record).run(now_ms)
        except (PassFailed, PassStopped) as failure:
            record.failure = repr(failure)
        return record

    async def _meet(self, kind: str) -> bool:
        for act in self.acts:
            await act(kind)
        return False

    async def read(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Read everything as a consumer does."""
        found: list[tuple[int, bytes | None, bytes | None]] = []
        server = self.server
        offset = server.start_offset
        while offset < server.end_offset:
            some = await read(server, offset, MIB)
            content = b"".join(some.in_memory())
            for position, header in batches(content):
                for record in decode_records(memoryview(content)[position : position + header.size_bytes]):
                    if record.offset >= offset:
                        found.append((record.offset, record.key, record.value))
            offset = some.next_offset
        return found


def once(wanted: str, act: Callable[[], Awaitable[object]], number: int = 1) -> Act:
    """Return what acts at the message of that kind and number."""
    seen = 0

    async def acts(kind: str) -> None:
        nonlocal seen
        seen += kind == wanted
        if kind == wanted and seen == number:
            await act()

    return acts
