"""A full disk, again and again: python -m tests.faults.full_disk --rounds 10

A round fills a small file system to its last byte, ends the broker (every second time with `kill -9`), fills what that
gave back, and starts the broker there, twice. It must serve every acknowledged record, refuse writes, and take deletes
until there is room to write again.

Then another process holds the disk at its last byte while the broker, of two cells, is killed: it must open both for
reading only, serve every acknowledged record, refuse each write, and be healthy when it is killed so. With 1 MiB free
it must take deletes without a restart, and with room write again.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.testing import Broker, broker
from tests.broker.conftest import make_batch, produce_request
from tests.broker.wire import Client
from tests.faults.diagnosis import named_damages
from tests.support.wire import Wire

DISK_BYTES = 128 << 20
KEPT, TRIMMED, DROPPED, FAR = "kept", "trimmed", "dropped", "far"
"""The last one in a cell beside the system cell."""
_KEPT_BATCHES_MAX = 40
_LARGE_BYTES, _SMALL_BYTES = 700_000, 6_000
"""The small ones are rows of the index: its log is long when the broker is killed."""
_SMALL_PER_LARGE = 20
_OTHER = "other"
_ROOM_S = 60.0
_ASKED_BYTES = 1 << 20
_READING_ONLY = "reading only"
_HOLDER = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as file:
    while True:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
        time.sleep(0.001)
"""

Acknowledged = dict[str, list[bytes]]
"""Batches of partition 0 by topic, each behind its epoch."""


class CannotMount(Exception):
    """A small file system cannot be had here."""


@contextmanager
def small_disk(path: Path, kind: str = "tmpfs") -> Iterator[Path]:
    """A file system of `DISK_BYTES` at `path`: in memory, or of the given kind in a file beside it. CannotMount."""
    image = path.with_name(path.name + ".image")
    if os.geteuid() != 0:
        raise CannotMount("mounting a small file system takes root")
    if kind == "tmpfs":
        commands = [["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(path)]]
    else:
        commands = [
            ["truncate", "-s", str(DISK_BYTES), str(image)],
            [f"mkfs.{kind}", "-q", *(["-m", "0"] if kind == "ext4" else []), str(image)],
            ["mount", "-o", "loop", str(image), str(path)],
        ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise CannotMount(f"{' '.join(command)}: {done.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)
        image.unlink(missing_ok=True)


def take_the_rest(disk: Path) -> None:
    """Another program fills the disk, to the last byte."""
    with (disk / _OTHER).open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def give_back(disk: Path) -> None:
    """The other program ends."""
    (disk / _OTHER).unlink()


@contextmanager
def held(disk: Path) -> Iterator[None]:
    """Another process takes every byte of the disk as soon as it is free."""
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(disk / _OTHER)]) as holder:
        try:
            wait_until(lambda: free_bytes(disk) == 0)
            yield
        finally:
            holder.kill()


def free_bytes(disk: Path) -> int:
    space = os.statvfs(disk)
    return space.f_bavail * space.f_frsize


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _ROOM_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.02)


async def run(disk: Path, *, rounds: int, seed: int) -> int:
    """Play the rounds; batches acknowledged. AssertionError where the broker breaks what the module promises."""
    source = random.Random(seed)
    acknowledged: Acknowledged = defaultdict(list)
    count = 0
    with broker(disk / "data", {"pqbroker.read.only.look.ms": "50"}) as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/bundles", {"name": "b"})
        calls.ask("POST", "/v1/cells", {"bundle": "b"})
        await create(node, KEPT, TRIMMED)
        calls.ask("POST", "/v1/topics", {"name": FAR, "partitions": 1, "config": {"pq.bundle": "b"}})
        for number in range(rounds):
            count += await _round(node, disk, acknowledged, source, kill=number % 2 == 0)
            count += await _held_round(node, disk, acknowledged, source)
            print(f"round {number + 1}: {count} batches acknowledged so far, all there", flush=True)
        node.restart()
        _expect_stored(node, acknowledged)
    return count


async def _round(node: Broker, disk: Path, acknowledged: Acknowledged, source: random.Random, *, kill: bool) -> int:
    """One full disk; batches acknowledged."""
    await create(node, DROPPED)
    count = await _fill(node, acknowledged, source)
    take_the_rest(disk)
    assert await produce(node, KEPT, make_batch(source.randbytes(_LARGE_BYTES))) == ErrorCode.KAFKA_STORAGE_ERROR
    if kill:
        node.kill()
    else:
        node.stop()
    take_the_rest(disk)
    node.start()
    _expect_stored(node, acknowledged)
    node.kill()
    node.start()
    for size in (_LARGE_BYTES, _SMALL_BYTES):
        assert await produce(node, KEPT, make_batch(source.randbytes(size))) == ErrorCode.KAFKA_STORAGE_ERROR
    _expect_stored(node, acknowledged)
    await _delete(node, acknowledged)
    await _write_when_there_is_room(node, acknowledged)
    _expect_stored(node, acknowledged)
    give_back(disk)
    await _trim(node, KEPT)
    acknowledged[KEPT] = []
    return count + 1


async def _held_round(node: Broker, disk: Path, acknowledged: Acknowledged, source: random.Random) -> int:
    """One disk that another process holds at its last byte; batches acknowledged."""
    await create(node, DROPPED)
    count = await _fill(node, acknowledged, source, batches_max=source.choice((20, 200, 2000)))
    with held(disk):
        node.kill()
        node.start()
        reading_only = await _expect_readable(node, acknowledged, source)
        node.kill()
        assert await named_damages(disk / "data") == ()
        node.start()
        reading_only += await _expect_readable(node, acknowledged, source)
    other = disk / _OTHER
    os.truncate(other, other.stat().st_size - _ASKED_BYTES)
    wait_until(lambda: _health(node) == ["good", "good"])
    _expect_stored(node, acknowledged)
    await _delete(node, acknowledged)
    _expect_stored(node, acknowledged)
    give_back(disk)
    await _write_when_there_is_room(node, acknowledged)
    await _write_when_there_is_room(node, acknowledged, FAR)
    _expect_stored(node, acknowledged)
    await _trim(node, KEPT)
    acknowledged[KEPT] = []
    print(f"held at 0 bytes: {reading_only} of 4 openings of a cell were for reading only", flush=True)
    return count + 2


async def _expect_readable(node: Broker, acknowledged: Acknowledged, source: random.Random) -> int:
    """How many cells are open for reading only; one whose log began in time takes no write either."""
    wait_until(lambda: _settled_health(node) is not None)
    health = _settled_health(node) or []
    _expect_stored(node, acknowledged)
    for topic, size in ((KEPT, _LARGE_BYTES), (FAR, _SMALL_BYTES)):
        assert await produce(node, topic, make_batch(source.randbytes(size))) == ErrorCode.KAFKA_STORAGE_ERROR
    if health[0] == _READING_ONLY:
        answer = await _ask(node, DeleteTopicsRequest(topic_names=[DROPPED], timeout_ms=5000), 5)
        assert answer.responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        shown = HttpCalls(lambda: node.http).ask("GET", "/health")["conditions"]
        assert ("reading-only", "cell 0") in {(one["kind"], one["place"]) for one in shown}
    return health.count(_READING_ONLY)


def _settled_health(node: Broker) -> list[str] | None:
    """How the node's cells are; None while one is opened. What a failed try gives back, if only for a moment, is worth
    another try."""
    looks = []
    for _ in range(5):
        looks.append(_health(node))
        time.sleep(0.1)
    is_settled = set(looks[0]) <= {"good", _READING_ONLY} and all(look == looks[0] for look in looks)
    return looks[0] if is_settled else None


def _health(node: Broker) -> list[str]:
    """How the node's cells are, the system cell first."""
    try:
        return [cell["health"] for cell in HttpCalls(lambda: node.http).ask("GET", "/v1/cells")["cells"]]
    except BrokerRefusedError as refusal:  # the system cell is being opened again
        return [refusal.code]


async def create(node: Broker, *names: str) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    answer = await _ask(node, CreateTopicsRequest(topics=topics, timeout_ms=5000))
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.NONE}


async def _fill(
    node: Broker, acknowledged: Acknowledged, source: random.Random, batches_max: int = 1 << 30
) -> int:
    """Produce until nothing is taken any more, or so many batches are; batches taken."""
    count = 0
    sizes = [_LARGE_BYTES, *[_SMALL_BYTES] * _SMALL_PER_LARGE]
    async with _connected(node) as client:
        while True:
            for topic in (KEPT, TRIMMED, DROPPED, FAR):
                if topic == KEPT and len(acknowledged[KEPT]) >= _KEPT_BATCHES_MAX:
                    continue
                for size in sizes:
                    batch = make_batch(source.randbytes(size))
                    code = await _produced(client, topic, batch)
                    if code == ErrorCode.KAFKA_STORAGE_ERROR:
                        return count
                    assert code == ErrorCode.NONE, code
                    acknowledged[topic].append(bytes(batch[16:]))
                    count += 1
                    if count >= batches_max:
                        return count


async def _delete(node: Broker, acknowledged: Acknowledged) -> None:
    for topic in (TRIMMED, FAR):
        await _trim(node, topic)
    answer = await _ask(node, DeleteTopicsRequest(topic_names=[DROPPED], timeout_ms=5000), 5)
    assert answer.responses[0].error_code == ErrorCode.NONE
    acknowledged[TRIMMED], acknowledged[DROPPED], acknowledged[FAR] = [], [], []


async def _trim(node: Broker, topic: str) -> None:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    topics = [DeleteRecordsTopic(name=topic, partitions=partitions)]
    answer = await _ask(node, DeleteRecordsRequest(topics=topics, timeout_ms=5000))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def _write_when_there_is_room(node: Broker, acknowledged: Acknowledged, topic: str = KEPT) -> None:
    batch = make_batch(b"again")
    waits = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    deadline = time.monotonic() + _ROOM_S
    while (code := await produce(node, topic, batch)) in waits and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    pools = HttpCalls(lambda: node.http).ask("GET", "/v1/pools")
    assert code == ErrorCode.NONE, (code, pools, _occupied(Path(pools["pools"][0]["directory"])), node.log[-2000:])
    acknowledged[topic].append(bytes(batch[16:]))


def _occupied(blobs: Path) -> dict[str, int]:
    """Bytes on the disk of each file that is not small, by its path."""
    disk = blobs.parents[1]
    sizes = {file.relative_to(disk).as_posix(): file.stat().st_blocks * 512 for file in disk.rglob("*")}
    return {name: size for name, size in sorted(sizes.items()) if size >= _SMALL_BYTES}


async def produce(node: Broker, topic: str, batch: bytes | bytearray) -> int:
    async with _connected(node) as client:
        return await _produced(client, topic, batch)


async def _produced(client: Client, topic: str, batch: bytes | bytearray) -> int:
    answer = await client.ask(produce_request(topic, batch), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def _ask(node: Broker, request: Any, version: int | None = None) -> Any:
    async with _connected(node) as client:
        return await client.ask(request, version)


@asynccontextmanager
async def _connected(node: Broker) -> AsyncIterator[Client]:
    host, _, port = node.kafka.rpartition(":")
    client = await Client.connect(host, int(port))
    try:
        yield client
    finally:
        await client.close()


def _expect_stored(node: Broker, acknowledged: Acknowledged) -> None:
    with Wire(node.kafka) as wire:
        for topic, batches in acknowledged.items():
            if batches or topic != DROPPED:
                assert [batch[16:] for _, batch in wire.log(topic, 0)] == batches, topic


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.full_disk", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--kind", default="tmpfs", help="of the file system, such as tmpfs, ext4, xfs (%(default)s)")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-full-") as scratch:
        mount = Path(scratch, "disk")
        mount.mkdir()
        with small_disk(mount, options.kind):
            count = asyncio.run(run(mount, rounds=options.rounds, seed=options.seed))
    rounds = options.rounds
    print(f"{rounds} full disks and {rounds} held at 0 bytes ({options.kind}), {count} batches acknowledged, none lost")


if __name__ == "__main__":
    main()
