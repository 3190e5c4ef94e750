"""Members of one group that join, leave, freeze and die, while records are written and read:
python -m tests.faults.consumer_churn [--migrates] --seconds 120

In every epoch a partition has one owner. Each record is read; twice only if its first reader was killed, froze or was
fenced before it could commit. Who has lost a partition commits for it no more. With `--migrates` those that replace
others speak KIP-848's protocol until all do, then the classic one until all do, and so on: the group moves both ways.
"""

import argparse
import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.list_groups import ListGroupsRequest
from pqbroker.testing import broker
from tests.broker.conftest import make_batch, produce_request
from tests.broker.wire import Client
from tests.faults.classic_member import ClassicMember
from tests.faults.group_readers import FATES, TOPIC, Book, Reader
from tests.faults.modern_member import ModernMember

MEMBERS: Final = 50
PARTITIONS: Final = 64
SESSION_MS: Final = 3_000
SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "250",
    "group.consumer.assignment.interval.ms": "200", "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}  # fmt: skip
_FATE_MAX_S: Final = 0.4
_MOVES: Final = 0.2
"""Chance that a group whose members all speak one protocol begins to move to the other."""
_STATIC_EVERY: Final = 5
_SETTLED_S: Final = 120.0
_WRITTEN_AT_ONCE: Final = 3

_Member: TypeAlias = ModernMember | ClassicMember


class Crowd:
    """The members, and what befalls them."""

    def __init__(self, address: str, topic_id: bytes, tasks: asyncio.TaskGroup, source: random.Random) -> None:
        self.book = Book()
        self._address = address
        self._topic_id = topic_id
        self._tasks = tasks
        self._source = source
        self._lives: dict[_Member, asyncio.Task[None]] = {}
        self._protocols = itertools.cycle((ModernMember.protocol, ClassicMember.protocol))
        self._protocol: str = next(self._protocols)

    def start(self, instance: str | None) -> None:
        reader = Reader(self.book, self._topic_id, instance)
        member: _Member
        if self._protocol == ModernMember.protocol:
            member = ModernMember(self._address, reader, self._topic_id, SESSION_MS)
        else:
            member = ClassicMember(self._address, reader, PARTITIONS, SESSION_MS)
        self._lives[member] = self._tasks.create_task(member.live())

    async def suffer(self, members: int, seconds: float, *, migrates: bool) -> None:
        """Somebody leaves, dies or freezes every now and then; who is gone is replaced at once. It lasts longer where
        a slow machine has not shown all of that by then, nor a group that is to move both its moves."""
        for number in range(members):
            self.start(f"static-{number}" if number % _STATIC_EVERY == 0 else None)
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline or not self.book.is_worth(moves=migrates):
            await asyncio.sleep(self._source.uniform(0, _FATE_MAX_S))
            member = self._choose(migrates=migrates)
            fate = self._source.choice(FATES)
            self.book.events[fate] += 1
            if fate == "freeze":
                member.freezes = True
                continue
            life = self._lives.pop(member)
            if fate == "leave":
                member.leaves = True
            else:
                life.cancel()
            await asyncio.wait([life])
            self.start(member.reader.instance)

    def _choose(self, *, migrates: bool) -> _Member:
        """Choose who suffers: where the group is to move, one of those that speak the earlier protocol. A while after
        the last of them another move begins."""
        everyone = list(self._lives)
        earlier = [member for member in everyone if member.protocol != self._protocol]
        if migrates and not earlier and self._source.random() < _MOVES:
            self._protocol = next(self._protocols)
        return self._source.choice(earlier or everyone)

    def end(self) -> None:
        for life in self._lives.values():
            life.cancel()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    host, _, port = address.rpartition(":")
    client = await Client.connect(host, int(port))
    try:
        yield client
    finally:
        client.abort()


async def run(address: str, *, seconds: float, seed: int, members: int = MEMBERS, migrates: bool = False) -> Book:
    """Let members come and go, and see that all that was written is read in the end."""
    async with connected(address) as admin:
        created = await admin.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
        )
    source = random.Random(seed)
    async with connected(address) as writing, connected(address) as watching, asyncio.TaskGroup() as tasks:
        crowd = Crowd(address, created.topics[0].topic_id, tasks, source)
        is_over = asyncio.Event()
        writer = tasks.create_task(_write(writing, crowd.book, source, is_over))
        watcher = tasks.create_task(_watch_type(watching, crowd.book, is_over))
        await crowd.suffer(members, seconds, migrates=migrates)
        is_over.set()
        await writer
        await watcher
        deadline = asyncio.get_running_loop().time() + _SETTLED_S
        while crowd.book.open_questions():
            assert asyncio.get_running_loop().time() < deadline, crowd.book.open_questions()[:5]
            await asyncio.sleep(0.1)
        crowd.end()
    read = Counter(partition for partition, _ in crowd.book.readers)
    assert read == +crowd.book.written, "a record was never read"
    return crowd.book


async def _write(client: Client, book: Book, source: random.Random, is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        partition = source.randrange(PARTITIONS)
        batch = make_batch(*[b"v"] * _WRITTEN_AT_ONCE)
        book.written[partition] += _WRITTEN_AT_ONCE
        answer = await client.ask(produce_request(TOPIC, batch, partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        await asyncio.sleep(0.005)


async def _watch_type(client: Client, book: Book, is_over: asyncio.Event) -> None:
    """Count how often the group becomes one of the other type."""
    known = ""
    while not is_over.is_set():
        listed = (await client.ask(ListGroupsRequest())).groups
        found = listed[0].group_type if listed else known
        if known and found != known:
            book.moves[found] += 1
        known = found
        await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.consumer_churn", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--migrates", action="store_true", help="the group moves between the protocols meanwhile")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with broker(settings=SETTINGS) as node:
        book = asyncio.run(run(node.kafka, seconds=given.seconds, seed=given.seed, migrates=given.migrates))
    epochs = len({epoch for _, epoch in book.owners})
    moved = "".join(f", {count} moves to {name}" for name, count in book.moves.items())
    print(
        f"{book.written.total()} records, {epochs} epochs, {dict(book.events)}{moved}: one owner a partition in each "
        f"epoch, every record read, {len(book.read_again)} again after a death or a freeze (seed {given.seed})"
    )


if __name__ == "__main__":
    main()
