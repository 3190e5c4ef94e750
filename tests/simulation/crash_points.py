"""Points at which a run is cut short: each of its commits in three ways, those of a second cell in two."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice

from tests.simulation.run import Outcome, run_forgetting, run_loss
from tests.simulation.world import has_compacted, has_kafka_transactions, has_transactions

FORGOTTEN = (0, 1, 3, 8)


def crash_points(seed: int, points: int) -> Iterator[Callable[[], Outcome]]:
    """So many runs, from the first commit of `seed` on; each later seed goes as far as its run has commits.

    A commit is lost before it is stored; or once it is durable, unacknowledged; or it and some before it were never
    synced. What was acknowledged is there in the first two, and nothing is there half in any.
    """
    return islice(_every(seed), points)


def second_cell_points(seed: int, points: int) -> Iterator[Callable[[], Outcome]]:
    """Yield `points` runs with transactions over two cells, each with a loss of the second cell at one commit of it."""
    return islice(_every_of_second(seed), points)


def compacted_points(seed: int, points: int) -> Iterator[Callable[[], Outcome]]:
    """Yield `points` runs with a compacted topic, each with a loss of the system cell at one of its commits."""
    return islice(_every_compacted(seed), points)


def producing_points(seed: int, points: int) -> Iterator[Callable[[], Outcome]]:
    """Yield `points` runs with Kafka transactions, each with a loss of a cell at one of its commits."""
    return islice(_every_producing(seed), points)


def _every(seed: int) -> Iterator[Callable[[], Outcome]]:
    for number in count(seed):
        for commit in range(_undisturbed(number).commits):
            yield partial(run_loss, number, commit, stored=False)
            yield partial(run_loss, number, commit, stored=True)
            yield partial(run_forgetting, number, commit, FORGOTTEN[commit % len(FORGOTTEN)])


def _every_of_second(seed: int) -> Iterator[Callable[[], Outcome]]:
    for number in count(seed):
        for commit in range(_undisturbed(number).second_commits if has_transactions(number) else 0):
            yield partial(run_loss, number, commit, stored=False, of_second=True)
            yield partial(run_loss, number, commit, stored=True, of_second=True)


def _every_compacted(seed: int) -> Iterator[Callable[[], Outcome]]:
    for number in count(seed):
        for commit in range(_undisturbed(number).commits if has_compacted(number) else 0):
            yield partial(run_loss, number, commit, stored=False)
            yield partial(run_loss, number, commit, stored=True)


def _every_producing(seed: int) -> Iterator[Callable[[], Outcome]]:
    for number in count(seed):
        if not has_kafka_transactions(number):
            continue
        undisturbed = _undisturbed(number)
        for of_second, commits in ((False, undisturbed.commits), (True, undisturbed.second_commits)):
            for commit in range(commits):
                yield partial(run_loss, number, commit, stored=False, of_second=of_second)
                yield partial(run_loss, number, commit, stored=True, of_second=of_second)


def _undisturbed(seed: int) -> Outcome:
    return run_loss(seed, 1 << 40, stored=False)
