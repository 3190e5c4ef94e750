"""One run of a broker of several nodes, from a seed to a verdict."""

import asyncio
import hashlib
from dataclasses import dataclass
from random import Random

from tests.simulation.inline_workers import inline_workers
from tests.simulation.ledger import Violation, expect
from tests.simulation.loop import Stuck
from tests.simulation.nodes.cluster import Cluster, replaced
from tests.simulation.nodes.members import SETTINGS
from tests.simulation.nodes.mishaps import NodeMishaps
from tests.simulation.nodes.network import NodesLoop
from tests.simulation.nodes.story import NodesStory
from tests.simulation.nodes.variants import WHOLE, Variant
from tests.simulation.run import SimulationFailed, _first, _known_chance, collected_once, defects_logged

DRAIN_S = 240.0
THREAD_S = 0.002
TEXTS = {
    "auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "1000", "pqbroker.loop.lag.sample.ms": "1000",
    **SETTINGS,
}  # fmt: skip
"""Settings of the broker. Its loop is never late, so that is seldom looked at."""
ENDS_MAX = 20


@dataclass(frozen=True, slots=True)
class NodesOutcome:
    """How a run went: `digest` tells its story from any other."""

    digest: str
    records: int
    commits: int
    openings: int
    """Starts of processes."""
    transactions: int
    offsets: int


def run_nodes(seed: int, variant: Variant = WHOLE) -> NodesOutcome:
    """Play a seed, of a broker that may be broken on purpose. SimulationFailed."""
    defects: list[str] = []
    try:
        with variant(), _known_chance(seed), inline_workers(), defects_logged(defects), collected_once():
            outcome = _played(seed, defects)
    except (ExceptionGroup, AssertionError, Stuck) as error:
        cause = _first(error)
        replay = f"replay: python -m tests.simulation --nodes --seed {seed}"
        raise SimulationFailed(f"{type(cause).__name__}: {cause}\n{replay}") from cause
    return outcome


def _played(seed: int, defects: list[str]) -> NodesOutcome:
    chance = Random(f"{seed} nodes")
    count, has_locks = chance.choice((2, 3)), chance.random() < 0.5
    loop = NodesLoop(lambda: THREAD_S, defects)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            outcome = runner.run(_whole(loop, seed, count, has_locks=has_locks))
            expect(not defects, f"defects: {defects}")  # what is ended now may fail in any way
            return outcome
        finally:
            loop.end_all()
            runner.run(end_rest())


async def end_rest() -> None:
    """End what dead processes have left, and what that begins while it ends."""
    for _ in range(ENDS_MAX):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=1)


async def _whole(loop: NodesLoop, seed: int, count: int, *, has_locks: bool) -> NodesOutcome:
    cluster = Cluster(loop, count, TEXTS, has_locks=has_locks)
    with replaced(cluster):
        await cluster.start()
        story = NodesStory(cluster, seed)
        living = asyncio.ensure_future(story.run())
        mishaps = asyncio.ensure_future(NodeMishaps(story, cluster).run())
        await asyncio.wait([living, mishaps], return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            living.result()
        await mishaps
        if not has_locks:
            await cluster.kill_all()  # a cell whose owner was fenced stays closed there until its node is started again
        story.is_ending = True
        try:
            async with asyncio.timeout(DRAIN_S):
                await living
        except TimeoutError:
            raise Violation(f"clients are not done {DRAIN_S:.0f} s after all is well") from None
        await story.verify()
        await cluster.kill_all()
        await story.verify()
        await cluster.stop()
    records = sum(len(book.log) for book in story.books.values())
    ends = [planned.end.name for transactor in story.transactors for planned in transactor.done]
    counts = story.counts
    commits = sum(cell.faults.commits for cell in cluster.directory.cells.values())
    facts = repr((records, commits, ends, sorted(counts.items()), loop.time()))
    digest = hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()
    return NodesOutcome(digest, records, commits, len(loop.processes), counts["transactions"], counts["offsets"])
