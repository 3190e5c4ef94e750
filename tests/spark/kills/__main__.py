"""`python -m tests.spark.kills [JOB…] --times N`: rounds of kills of these jobs, or of all, until one finds a fault."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from pqbroker.pipeline.session import start_session
from pqbroker.testing import broker
from tests.spark.kills.cases import CASES
from tests.spark.kills.rounds import play
from tests.spark.kills.victim import OPTIONS, TASKS_MAX


def main() -> int:
    """Play the rounds, each with a broker and directories of its own; those of a fault stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"jobs to kill, of {', '.join(CASES)}; default: all")
    parser.add_argument("--times", type=int, default=20, metavar="N", help="rounds (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="seed of the first round")
    options = parser.parse_args()
    if unknown := set(options.jobs) - CASES.keys():
        parser.error(f"unknown jobs: {', '.join(unknown)}")
    jobs = options.jobs or list(CASES)
    spark = start_session("kills", master=f"local[{TASKS_MAX}]", options=OPTIONS)
    spark.sparkContext.setLogLevel("ERROR")
    for number in range(options.times):
        seed, begun = options.seed + number, time.monotonic()
        directory = Path(tempfile.mkdtemp(prefix="kills-"))
        print(f"round {number + 1} of {options.times}, {' '.join(jobs)}, seed {seed}, {directory}", flush=True)
        with broker(directory / "data") as node:
            play(spark, node, directory / "jobs", jobs, seed)
        print(f"each row once, {time.monotonic() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
