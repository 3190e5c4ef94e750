"""The command of `run`."""

import argparse
import random
import tempfile
from pathlib import Path

from tests.faults.flips import run


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.flips", description=run.__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="pqbroker-flips-"))
    print(f"seed {options.seed}, in {scratch}", flush=True)
    outcome = run.run(scratch, count=options.count, seed=options.seed)
    for (kind, how), count in sorted(outcome.flips.items()):
        print(f"{count:6} in {kind}, {how}")
    print(f"{outcome} (seed {options.seed})")
    if outcome.silent:
        parser.exit(1, "\n".join(outcome.silent) + "\n")
    scratch.rmdir()


if __name__ == "__main__":
    main()
