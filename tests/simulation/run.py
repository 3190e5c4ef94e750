"""One simulation: a world, its clients and its mishaps on a loop of its own, from a seed to a verdict."""

import asyncio
import gc
import logging
import os
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from unittest.mock import patch

from tests.simulation.admin import Observer, SimulatedAdmin
from tests.simulation.chaos import Chaos, LossAt, Mishaps
from tests.simulation.compacted_topic import SimulatedCompactedTopic
from tests.simulation.follower import SimulatedFollower
from tests.simulation.inline_workers import inline_workers
from tests.simulation.ledger import Violation, expect
from tests.simulation.loop import Stuck, VirtualLoop
from tests.simulation.member import SimulatedMember
from tests.simulation.node import SimulatedNode
from tests.simulation.producing import SimulatedProducing
from tests.simulation.sorted_table import SimulatedSortedTable
from tests.simulation.table import SimulatedTable
from tests.simulation.verify import verify, verify_nothing_left, verify_prefix
from tests.simulation.world import GROUPS, LINES_TOLD, World

MEMBERS = 2
DRAIN_S = 120.0
THREAD_S = 0.002
YOUNG_MAX, YOUNG_LOOKS_MAX = 20_000, 1000
"""Objects, and looks at young ones, after which the collector looks: never at what is older than the run."""

_log = logging.getLogger("pqbroker")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went: `digest` tells its story from any other."""

    digest: str
    commits: int
    openings: int
    records: int
    second_commits: int
    """Commits of the second cell, 0 where there is none."""


class SimulationFailed(AssertionError):
    """Says what was broken, how it came to that, and how to see it again."""


def run(seed: int) -> Outcome:
    """Everything that may go wrong, at random. SimulationFailed."""

    async def play(world: World) -> None:
        await _live(world, Mishaps(world))
        await world.node.settle()
        await verify(world, is_fresh=False)
        await world.node.kill()
        await world.node.start()
        await _verify_at_rest(world)

    return _simulate(seed, play, f"--seed {seed}")


def run_loss(seed: int, commit: int, *, stored: bool, of_second: bool = False) -> Outcome:
    """The system cell, or the other one, is lost at one of its commits, and nothing else goes wrong. SimulationFailed.
    """

    async def play(world: World) -> None:
        await _live(world, LossAt(world, commit, stored=stored, of_second=of_second))
        await _verify_at_rest(world)

    chosen = f"{' --stored' if stored else ''}{' --second' if of_second else ''}"
    return _simulate(seed, play, f"--seed {seed} --loss-at {commit}{chosen}")


def run_forgetting(seed: int, commit: int, forgotten: int) -> Outcome:
    """The node dies at one commit, and of those before the last `forgotten` were never synced. SimulationFailed."""

    async def play(world: World) -> None:
        loss = LossAt(world, commit)
        living = asyncio.ensure_future(_live(world, loss))
        await loss.run(world)
        living.cancel()
        await asyncio.wait([living])
        world.is_ending = True
        await world.node.kill()
        world.node.engine.forget(forgotten)
        await world.node.start()
        await world.node.settle()
        await verify_prefix(world)

    return _simulate(seed, play, f"--seed {seed} --loss-at {commit} --forget {forgotten}", forgettable=forgotten)


async def _live(world: World, chaos: Chaos) -> None:
    """The busy part, and the end of it: everybody finishes what they have begun."""
    try:
        async with asyncio.timeout(DRAIN_S), asyncio.TaskGroup() as clients:
            world.clients = clients
            starting = clients.create_task(world.node.start())
            admin = SimulatedAdmin(world)
            clients.create_task(admin.run())
            observer = Observer(world, admin)
            clients.create_task(observer.run())
            clients.create_task(SimulatedFollower(world).run())
            if world.has_table:
                clients.create_task(SimulatedTable(world).run())
            if world.compacted_story is not None:
                clients.create_task(SimulatedCompactedTopic(world, world.compacted_story).run())
            if world.producing_story is not None:
                clients.create_task(SimulatedProducing(world, world.producing_story).run())
            if world.sorted_story is not None:
                clients.create_task(SimulatedSortedTable(world, world.sorted_story).run())
            for group in GROUPS:
                for number in range(MEMBERS):
                    clients.create_task(SimulatedMember(world, group, number).run())
            await starting
            await chaos.run(world)
            world.is_ending = True
    except TimeoutError:
        raise Violation(f"clients are not done {DRAIN_S:.0f} s after the start") from None
    observer.look()


async def _verify_at_rest(world: World) -> None:
    """Once what a start leaves for later is done too."""
    await world.node.settle()
    await verify(world, is_fresh=True)
    await world.node.stop()
    if world.backup_story is not None:
        await world.backup_story.verify(_verify_ended)


def _verify_ended(node: SimulatedNode) -> None:
    expect(not node.tasks_failed(), f"periodic work failed: {node.tasks_failed()}")


def _simulate(
    seed: int, play: Callable[[World], Awaitable[None]], replay: str, *, forgettable: int | None = None
) -> Outcome:
    story: deque[str] = deque(maxlen=LINES_TOLD)
    defects: list[str] = []
    try:
        with _known_chance(seed), defects_logged(defects), collected_once():
            outcome = _played(play, partial(World, seed, story, forgettable=forgettable), defects)
        expect(not defects, f"defects: {defects}")
    except (ExceptionGroup, AssertionError, Stuck) as error:
        cause = _first(error)
        told = "\n".join(story)
        message = f"{type(cause).__name__}: {cause}\n{told}\nreplay: python -m tests.simulation {replay}"
        raise SimulationFailed(message) from cause
    return outcome


def _played(play: Callable[[World], Awaitable[None]], make: Callable[[], World], defects: list[str]) -> Outcome:
    worlds: list[World] = []

    async def whole() -> Outcome:
        world = make()
        worlds.append(world)
        await play(world)
        expect(not world.node.tasks_failed(), f"periodic work failed: {world.node.tasks_failed()}")
        second_commits = sum(engine.faults.commits for engine in world.node.engines[1:])
        await world.node.end()
        verify_nothing_left(world, loop.timers)
        records = sum(len(book.log) for topic in world.topics.values() for book in topic.partitions.values())
        commits = world.node.engine.faults.commits
        return Outcome(world.digest, commits, world.node.openings, records, second_commits)

    loop = VirtualLoop(lambda: THREAD_S, defects)
    kills = inline_workers(lambda: worlds[0].kills_worker())
    with kills, asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(whole())


@contextmanager
def collected_once() -> Iterator[None]:
    """Have Python's collector look at what a run made once it is over; looking all the time took a fifth of its time.
    Tasks that failed and were forgotten are noted then."""
    thresholds = gc.get_threshold()
    gc.set_threshold(YOUNG_MAX, YOUNG_LOOKS_MAX, thresholds[2])
    try:
        yield
        gc.collect(1)
    finally:
        gc.set_threshold(*thresholds)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def _known_chance(seed: int) -> Iterator[None]:
    """Have what the broker draws from chance come from the seed: topics, for one, start in the order of their ids."""
    drawn, state = Random(f"{seed} secrets").randbytes, random.getstate()
    random.seed(f"{seed} random")
    with patch.object(secrets, "token_bytes", drawn), patch.object(os, "urandom", drawn):
        yield
    random.setstate(state)


@contextmanager
def defects_logged(found: list[str]) -> Iterator[None]:
    """Note what the broker itself calls a defect; its other complaints are about what we do to it."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.CRITICAL or "defect" in record.msg:
                found.append(record.getMessage())

    listener = Listener(logging.ERROR)
    was = _log.level, _log.propagate
    _log.addHandler(listener)
    _log.setLevel(logging.ERROR)
    _log.propagate = False
    try:
        yield
    finally:
        _log.removeHandler(listener)
        _log.setLevel(was[0])
        _log.propagate = was[1]
