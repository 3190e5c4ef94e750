"""What one Produce and one parked Fetch cost this broker, hot: python -m tests.benchmarks.hot [--against COMMIT]

The real node in one process, over its disk engine, with transports that keep what is written to them. The commit thread
rests: its rounds are played by hand, so that the loop's part and its own are timed apart, and no hand-over between
threads is in either. Data lies in memory where the system has a file system there; processor time counts, and of many
requests the one that nine tenths are slower than: disks and other processes are hardly in it. A process that serves
sockets runs cold and takes 1.5 to 2 times as long. Calls are counted by the interpreter.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from time import thread_time_ns
from types import FrameType
from typing import Any

import uvloop

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.transactional_producers.rules import NO_CLAIM, Addition, Claim, Initialisation
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.records import TRANSACTIONAL, Record, encode_batch
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.tablets.coordinator_rows import PartitionId
from tests.benchmarks import hot_commits
from tests.benchmarks.figures import percentile
from tests.benchmarks.latency import CONNECTIONS
from tests.benchmarks.wire import (
    check_produced,
    fetch_request,
    produce_request,
    produced_offset,
    read_fetched,
    record_batch,
)

VALUE_BYTES = 100
TOPIC = "hot"
WIDE_TOPIC = "hot-wide"
COMPACTED = "hot-compacted"
KEY = b"key-00000001"
EXCHANGES = 2_000
EXCHANGES_MIN = 6
HOT_PERCENT = 10
SPREAD = 6
"""Partitions."""
WIDE = (10, 100)
"""Partitions of one request."""
TRACED = 50
_FETCH_BYTES = 1 << 20
_WAIT_MS = 30_000
_TIMEOUT_MS = 900_000
_MEMORY = Path("/dev/shm")


Calls = list[tuple[Callable[..., object], tuple[object, ...]]]


@dataclass(slots=True)
class ThreadCost:
    """Of one thread: processor time and calls of one request."""

    nanoseconds: int = 0
    python_calls: int = 0
    c_calls: int = 0


@dataclass(slots=True)
class Cost:
    """Of one exchange, by thread."""

    loop: ThreadCost = field(default_factory=ThreadCost)
    commit: ThreadCost = field(default_factory=ThreadCost)


@dataclass(frozen=True, slots=True)
class Figures:
    """For one request."""

    loop_us: float
    commit_us: float
    loop_python_calls: float
    loop_c_calls: float
    commit_python_calls: float
    commit_c_calls: float



class Transport:
    """Keeps what is written; has no socket."""

    def __init__(self) -> None:
        self.written = b""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 9092) if name in ("sockname", "peername") else default

    def write(self, data: bytes) -> None:
        self.written += bytes(data)

    def writelines(self, buffers: list[bytes]) -> None:
        self.written += b"".join(buffers)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Loop(uvloop.Loop):
    """Keeps what a server connects clients with, and, while it is asked to, what is to run in its next turn."""

    connect: Callable[[], Any]
    turn: Calls | None = None

    async def create_server(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        if "sock" in options:
            self.connect = protocol_factory
        return await super().create_server(protocol_factory, *args, **options)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        if self.turn is None:
            return super().call_soon(callback, *args, context=context)
        self.turn.append((callback, args))
        return None


class Engine(RocksEngine):
    """Keeps the shard that it opened."""

    shard: Any

    async def open(self) -> Any:
        self.shard = await super().open()
        return self.shard


class Bench:
    """The node between its transports and its disk, moved by hand."""

    def __init__(self, loop: Loop, shard: Any) -> None:
        committer, turn = shard._committer, shard._turn_queue
        hand_over = turn._hand_over
        self._loop = loop
        self._connected: list[Any] = []
        self._submitted: list[Any] = []
        self._told: Calls = []
        self._commit = partial(committer._commit, committer._cell)
        turn._hand_over = self._submitted.extend
        committer._post = lambda callback, *arguments: self._told.append((callback, arguments))

        def give_back() -> None:
            turn._hand_over = hand_over
            del committer._post

        self._give_back = give_back

    def connect(self) -> tuple[Any, Transport]:
        protocol, transport = self._loop.connect(), Transport()
        protocol.connection_made(transport)
        self._connected.append(protocol)
        return protocol, transport

    def exchange(self, sent: list[tuple[Any, bytes]], watch: "Watch") -> Cost:
        """What the frames cost until nothing is left to do."""
        cost = Cost()
        self._loop.turn = []
        try:
            for protocol, frame in sent:
                with watch(cost.loop):
                    _receive(protocol, frame)
            while self._submitted or self._loop.turn:
                self._play(cost, watch)
        finally:
            self._loop.turn = None
        return cost

    def end(self) -> None:
        """Leave the rounds to the commit thread again; the clients are gone."""
        for protocol in self._connected:
            protocol.connection_lost(None)
        self._give_back()

    def _play(self, cost: Cost, watch: "Watch") -> None:
        """A turn of the loop, the round that it gave the commit thread, and what that told."""
        turn, self._loop.turn = self._loop.turn, []
        with watch(cost.loop):
            _call(turn or [])
        round_, self._submitted[:] = self._submitted[:], []
        if round_:
            with watch(cost.commit):
                self._commit(round_)
        told, self._told[:] = self._told[:], []
        with watch(cost.loop):
            _call(told)


Watch = Callable[[ThreadCost], Any]


@contextmanager
def timed(part: ThreadCost) -> Iterator[None]:
    started = thread_time_ns()
    yield
    part.nanoseconds += thread_time_ns() - started


@contextmanager
def counted(part: ThreadCost) -> Iterator[None]:
    def count(_: FrameType, event: str, __: object) -> None:
        part.python_calls += event == "call"
        part.c_calls += event == "c_call"

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
    part.python_calls -= 1  # the end of this context
    part.c_calls -= 1  # the `setprofile` in it


async def measure(
    directory: Path, exchanges: int, settings: BrokerSettings | None = None,
    prepare: Callable[[Server], Awaitable[None]] | None = None,
) -> dict[str, Figures]:  # fmt: skip
    """Every figure by what was sent, `exchanges` times each. `prepare`: called with the server that has started."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    engine = Engine(directory)
    server = Server(settings or BrokerSettings(), engine, Address("127.0.0.1", 0))
    await server.start()
    if prepare is not None:
        await prepare(server)
    await server._cell.current.topics.create(TOPIC, SPREAD, {})
    await server._cell.current.topics.create(WIDE_TOPIC, max(WIDE), {})
    await server._cell.current.topics.create(COMPACTED, 1, {"cleanup.policy": "compact"})
    claims = [await _begin_transaction(server, topic) for topic in (TOPIC, COMPACTED)]
    bench = Bench(loop, engine.shard)
    gc.collect()
    one, many = _produce(bench, 1), _produce(bench, CONNECTIONS)
    spread = _produce(bench, CONNECTIONS, SPREAD)
    both, fetch = _produce_and_fetch(bench), _fetch(bench)
    keyed, many_keyed = _produce(bench, 1, topic=COMPACTED), _produce(bench, CONNECTIONS, topic=COMPACTED)
    in_transaction = _produce_in_transaction(bench, TOPIC, claims[0])
    keyed_in_transaction = _produce_in_transaction(bench, COMPACTED, claims[1])
    try:
        return {
            "one Produce": _figures(one, exchanges, 1),
            f"{CONNECTIONS} connections, each a Produce": _figures(many, exchanges, CONNECTIONS),
            f"the same to {SPREAD} partitions": _figures(spread, exchanges, CONNECTIONS),
            "one Produce, and the parked Fetch that gets it": _figures(both, exchanges, 1),
            "one Fetch from the head": _figures(fetch, exchanges, 1),
            "one Produce to a compacted topic": _figures(keyed, exchanges, 1),
            f"{CONNECTIONS} connections, each a Produce to a compacted topic": _figures(
                many_keyed, exchanges, CONNECTIONS
            ),
            "one Produce in a transaction": _figures(in_transaction, exchanges, 1),
            "one Produce in a transaction, to a compacted topic": _figures(keyed_in_transaction, exchanges, 1),
            **{
                f"one Produce of {count} partitions, for each of them": _figures(
                    _produce_wide(bench, count), max(exchanges // count, EXCHANGES_MIN), count
                )
                for count in WIDE
            },
        }
    finally:
        bench.end()
        await server.stop()


def _figures(exchange: Callable[[Watch], Cost], count: int, requests: int) -> Figures:
    """Of `count` exchanges of so many requests; the first sixth is not counted."""
    costs = [exchange(timed) for _ in range(count)][count // 6 :]
    calls = [exchange(counted) for _ in range(TRACED)]

    def hot_us(of: Callable[[Cost], int]) -> float:
        return round(percentile(list(map(of, costs)), HOT_PERCENT) / requests / 1000, 1)

    def median(of: Callable[[Cost], int]) -> float:
        return round(statistics.median(map(of, calls)) / requests, 1)

    return Figures(
        hot_us(lambda cost: cost.loop.nanoseconds),
        hot_us(lambda cost: cost.commit.nanoseconds),
        median(lambda cost: cost.loop.python_calls),
        median(lambda cost: cost.loop.c_calls),
        median(lambda cost: cost.commit.python_calls),
        median(lambda cost: cost.commit.c_calls),
    )


def _produce(bench: Bench, count: int, partitions: int = 1, topic: str = TOPIC) -> Callable[[Watch], Cost]:
    clients = [bench.connect() for _ in range(count)]
    record = Record(timestamp=1_700_000_000_000, key=KEY if topic == COMPACTED else None, value=bytes(VALUE_BYTES))
    batch = bytes(encode_batch([record]))
    frames = [produce_request(topic, [(number % partitions, batch)]) for number in range(count)]

    def exchange(watch: Watch) -> Cost:
        sent = [(protocol, frame) for (protocol, _), frame in zip(clients, frames, strict=True)]
        cost = bench.exchange(sent, watch)
        for _, transport in clients:
            check_produced(memoryview(_answer(transport))[4:], topic)
        return cost

    return exchange


def _produce_wide(bench: Bench, partitions: int) -> Callable[[Watch], Cost]:
    """One request of a batch for each of several partitions."""
    protocol, transport = bench.connect()
    batch = record_batch([bytes(VALUE_BYTES)], 1_700_000_000_000)
    frame = produce_request(WIDE_TOPIC, [(index, batch) for index in range(partitions)])

    def exchange(watch: Watch) -> Cost:
        cost = bench.exchange([(protocol, frame)], watch)
        check_produced(memoryview(_answer(transport))[4:], WIDE_TOPIC)
        return cost

    return exchange


async def _begin_transaction(server: Server, topic: str) -> Claim:
    """Begin a producer's transaction over a topic's first partition; its id is the topic's name."""
    current = server._cell.current
    producers, found = current.transactional_producers, current.topics.get(topic)
    assert found is not None
    spare_id = await server.node.producer_ids.take_from_next_block()
    image = await producers.initialise(topic, Initialisation(_TIMEOUT_MS, NO_CLAIM, spare_id))
    claim = Claim(image.producer_id, image.epoch)
    await producers.add(topic, claim, Addition(frozenset({PartitionId(found.record.topic_id, 0)})))
    return claim


def _produce_in_transaction(bench: Bench, topic: str, claim: Claim) -> Callable[[Watch], Cost]:
    protocol, transport = bench.connect()
    record = Record(timestamp=1_700_000_000_000, key=KEY, value=bytes(VALUE_BYTES))
    sequences = count()

    def exchange(watch: Watch) -> Cost:
        batch = encode_batch(
            [record], attributes=TRANSACTIONAL, producer_id=claim.producer_id, producer_epoch=claim.epoch,
            base_sequence=next(sequences),
        )  # fmt: skip
        cost = bench.exchange([(protocol, produce_request(topic, [(0, bytes(batch))], topic))], watch)
        check_produced(memoryview(_answer(transport))[4:], topic)
        return cost

    return exchange


def _produce_and_fetch(bench: Bench) -> Callable[[Watch], Cost]:
    """The Fetch is parked when the Produce comes; what it costs to park it is counted too."""
    produce = _produce(bench, 1)
    protocol, transport = bench.connect()
    next_offset = 0

    def ask(watch: Watch) -> Cost:
        return bench.exchange([(protocol, fetch_request(TOPIC, 0, next_offset, _FETCH_BYTES, _WAIT_MS))], watch)

    def exchange(watch: Watch) -> Cost:
        nonlocal next_offset
        parked = ask(watch)
        while transport.written:  # what is there already
            next_offset = _next_offset(transport)
            parked = ask(watch)
        cost = produce(watch)
        next_offset = _next_offset(transport)
        cost.loop.nanoseconds += parked.loop.nanoseconds
        cost.loop.python_calls += parked.loop.python_calls
        cost.loop.c_calls += parked.loop.c_calls
        return cost

    return exchange


def _fetch(bench: Bench) -> Callable[[Watch], Cost]:
    """Of a batch that was produced just now; that is not counted."""
    producer, produced = bench.connect()
    consumer, fetched = bench.connect()
    frame = produce_request(TOPIC, [(0, record_batch([bytes(VALUE_BYTES)], 1_700_000_000_000))])

    def exchange(watch: Watch) -> Cost:
        bench.exchange([(producer, frame)], timed)
        offset = produced_offset(memoryview(_answer(produced))[4:], TOPIC)
        cost = bench.exchange([(consumer, fetch_request(TOPIC, 0, offset, _FETCH_BYTES, _WAIT_MS))], watch)
        assert _next_offset(fetched) == offset + 1
        return cost

    return exchange


def _next_offset(transport: Transport) -> int:
    found = read_fetched(memoryview(_answer(transport))[4:], TOPIC).next_offset
    assert found is not None
    return found


def _answer(transport: Transport) -> bytes:
    written, transport.written = transport.written, b""
    return written


def _call(calls: Calls) -> None:
    for callback, arguments in calls:
        callback(*arguments)


def _receive(protocol: Any, frame: bytes) -> None:
    """As a transport does it."""
    position = 0
    while position < len(frame):
        buffer = protocol.get_buffer(-1)
        size = min(len(buffer), len(frame) - position)
        buffer[:size] = frame[position : position + size]
        position += size
        protocol.buffer_updated(size)


def main() -> None:
    """Print this broker's figures, or those of two commits, measured in turn."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.hot", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", metavar="COMMIT", help="beside an earlier commit, three times each, in turn")
    parser.add_argument("--json", action="store_true", help="figures for a program")
    options = parser.parse_args()
    if options.against:
        print("\n".join(hot_commits.lines(hot_commits.compare(options.against))))
        return
    memory = _MEMORY if _MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="pqbroker-hot-", dir=memory) as scratch,
        asyncio.Runner(loop_factory=Loop) as runner,
    ):
        found = runner.run(measure(Path(scratch, "data"), EXCHANGES))
    measured: hot_commits.Measured = {name: asdict(figures) for name, figures in found.items()}
    print(json.dumps(measured) if options.json else "\n".join(hot_commits.lines([("", measured)])))


if __name__ == "__main__":
    main()
