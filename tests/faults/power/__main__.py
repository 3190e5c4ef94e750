"""The command of `cuts`."""

import argparse
import random
import tempfile
from pathlib import Path

from tests.faults.power import cuts
from tests.faults.power.recording import reason_not_to_record


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.power", description=cuts.__doc__)
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--served", type=int, default=3, help="of them seen through a process of its own")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    if reason := reason_not_to_record():
        parser.error(reason)
    scratch = Path(tempfile.mkdtemp(prefix="pqbroker-power-"))
    print(f"seed {options.seed}, in {scratch}", flush=True)
    recorded = cuts.record(scratch, options.seed)
    seen = cuts.run(scratch, recorded, cuts=options.cuts, served=options.served, seed=options.seed)
    print(
        f"0 of {seen.cuts} power cuts between {seen.events} events lost any of {seen.acknowledged} records and"
        f" {seen.answers} answers of the story; {seen.backups} backups restored (seed {options.seed})"
    )


if __name__ == "__main__":
    main()
