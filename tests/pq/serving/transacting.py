"""Commits over several partitions, step by step: what a coordinator does, for tests."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.serving.joint_write import Share
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.transacted_batches import BatchesPart
from pqbroker.pq.transactions.participants import CommitPart, KeyedParticipant
from pqbroker.pq.transactions.stored_forms import (
    CommitDecision,
    ParticipantId,
    PreparedHead,
    TransactionId,
)
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from tests.pq.rig import START_MS, batch

TIMEOUT_S = 20.0
HOME = ParticipantId(TabletId(1 << 20), 3)
DIGEST = bytes(range(16))


def transaction(number: int) -> TransactionId:
    return TransactionId(b"%016d" % number)


def head(number: int = 1, home: ParticipantId = HOME) -> PreparedHead:
    return PreparedHead(transaction(number), home, 5, START_MS)


def decision(number: int, timestamp: int, others: Sequence[ParticipantId] = ()) -> CommitDecision:
    return CommitDecision(transaction(number), timestamp, START_MS, DIGEST, 2, tuple(others))


def part(
    partition: PartitionServer,
    clock: Callable[[], int],
    *values: bytes,
    fence: Fence | None = None,
    prepared: PreparedHead | None = None,
) -> BatchesPart:
    """A part with a batch for each value."""
    made = BatchesPart(Share(partition, [batch(value) for value in values]), fence, clock)
    if prepared is not None:
        made.prepares(prepared)
    return made


async def hold(*parts: CommitPart) -> None:
    """Enter all parts, and return when all hold; what one is refused for is raised, and all have left."""
    turns = [asyncio.get_running_loop().create_future() for _ in parts]
    for one, turn in zip(parts, turns, strict=True):
        one.enter(lambda error, turn=turn: turn.set_result(error))  # type: ignore[misc]
    errors: list[BaseException] = []
    waiting = set(turns)
    async with asyncio.timeout(TIMEOUT_S):
        while waiting and not errors:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            errors += [error for error in (turn.result() for turn in done) if error is not None]
    errors = errors or [error for error in (one.refusal() for one in parts) if error is not None]
    if errors:
        for one in parts:
            one.leave()
        raise errors[0]


async def send(
    parts: Sequence[CommitPart],
    timestamp: int | None,
    home: tuple[KeyedParticipant, CommitDecision] | None = None,
) -> None:
    """One request of parts of one cell that hold, with the decision if it is made there."""
    by_tablet: dict[KeyValueTablet, list[Command]] = defaultdict(list)
    for one in parts:
        await one.encode(timestamp)
        by_tablet[one.participant.kv] += one.commands(timestamp)
    if home is not None:
        by_tablet[home[0].kv].append(home[0].decision_command(home[1]))
    request = execute_together(list(by_tablet.items()))
    await request.wait()
    error = request.exception()
    told = [one.told(error) for one in parts]
    if error is None and home is not None:
        home[0].take_decision(home[1])
    for outcome in told:
        await outcome


async def prepare(*parts: CommitPart) -> None:
    """Have parts that are to be prepared durable; each of a cell of its own, or all of one."""
    await hold(*parts)
    for one in parts:
        await send([one], None)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():  # noqa: ASYNC110 (nobody sets an event)
            await asyncio.sleep(0)


async def turns_pass() -> None:
    """Let what may happen by now happen."""
    for _ in range(20):
        await asyncio.sleep(0)
