"""Where a run is cut short: at each of its commits, in each of three ways."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from tests.simulation.run import Outcome, run_forgetting, run_loss

FORGOTTEN = (0, 1, 3, 8)
WAYS = 3


def crash_points(seed: int, points: int) -> Iterator[Callable[[], Outcome]]:
    """So many runs, from the first commit of `seed` on; each later seed goes as far as its run has commits.

    A commit is lost before it is stored; or once it is durable, unacknowledged; or it and some before it were never
    synced. What was acknowledged is there in the first two, and nothing is there half in any.
    """
    for number in count(seed):
        last = _commits(number)
        for commit in range(last):
            for one in (
                partial(run_loss, number, commit, stored=False),
                partial(run_loss, number, commit, stored=True),
                partial(run_forgetting, number, commit, FORGOTTEN[commit % len(FORGOTTEN)]),
            ):
                if points == 0:
                    return
                points -= 1
                yield one


def _commits(seed: int) -> int:
    """How many commits a run has that nothing disturbs."""
    return run_loss(seed, 1 << 40, stored=False).commits
