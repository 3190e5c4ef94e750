"""Simulations from the command line: python -m tests.simulation --seeds 10000

One seed tells its whole story on failure and does the same each time: python -m tests.simulation --seed 17
A broker of several nodes, whose processes, links and store fail: python -m tests.simulation --nodes --seeds 10000
A seed's run is cut at each of its commits in turn: python -m tests.simulation --seed 17 --crash-points 5000
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

from tests.simulation.crash_points import crash_points
from tests.simulation.nodes.run import NodesOutcome, run_nodes
from tests.simulation.run import Outcome, SimulationFailed, run, run_forgetting, run_loss

SEEDS = 200


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", help=f"so many, from --seed on ({SEEDS})")
    parser.add_argument("--seed", type=int, metavar="S", help="this one; the first one with --seeds or --crash-points")
    parser.add_argument("--crash-points", type=int, metavar="N", help="cut so many runs short instead")
    parser.add_argument("--nodes", action="store_true", help="of a broker of several nodes")
    parser.add_argument("--loss-at", type=int, metavar="COMMIT", help="lose the cell at this commit, and nothing else")
    parser.add_argument("--stored", action="store_true", help="with --loss-at: once the commit is durable")
    parser.add_argument("--second", action="store_true", help="with --loss-at: a commit of the second cell")
    parser.add_argument("--forget", type=int, metavar="N", help="with --loss-at: the last commits were never synced")
    options = parser.parse_args()
    if options.loss_at is None and (options.stored or options.second or options.forget is not None):
        parser.error("--stored, --second and --forget say what happens at a commit: give --loss-at COMMIT too")
    sys.exit(_run_all(_chosen(options)))


def _chosen(options: argparse.Namespace) -> Iterable[Callable[[], Outcome | NodesOutcome]]:
    seed = options.seed or 0
    if options.forget is not None:
        return [partial(run_forgetting, seed, options.loss_at, options.forget)]
    if options.loss_at is not None:
        return [partial(run_loss, seed, options.loss_at, stored=options.stored, of_second=options.second)]
    if options.crash_points is not None:
        return crash_points(seed, options.crash_points)
    seeds = options.seeds or (SEEDS if options.seed is None else 1)
    if options.nodes:
        return [partial(run_nodes, number) for number in range(seed, seed + seeds)]
    return [partial(run, number) for number in range(seed, seed + seeds)]


def _run_all(runs: Iterable[Callable[[], Outcome | NodesOutcome]]) -> int:
    """Exit status: whether any failed."""
    started = time.monotonic()
    done = failed = records = commits = openings = 0
    for one in runs:
        done += 1
        try:
            outcome = one()
        except SimulationFailed as failure:
            failed += 1
            print(failure, end="\n\n", flush=True)
            continue
        records, commits, openings = records + outcome.records, commits + outcome.commits, openings + outcome.openings
    seconds = time.monotonic() - started
    print(f"{done} runs, {failed} failed: {records} records, {commits} commits, {openings} starts in {seconds:.0f} s")
    if done == 1 and not failed:
        print(outcome.digest)
    return int(failed > 0)


if __name__ == "__main__":
    main()
