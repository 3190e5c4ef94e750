"""Random requests to a fresh broker: `python -m tests.grammar --requests 1000000 --seed 7`.

`--attacks` carries out each attack that was seen to work instead, each against a fresh broker.
"""

import argparse
import random

from tests.grammar.attacks import ATTACKS, PARTITIONS, launch
from tests.grammar.node import attacked
from tests.grammar.run import attack

parser = argparse.ArgumentParser(prog="python -m tests.grammar", description=__doc__)
parser.add_argument("--requests", type=int, default=100_000, help="how many are sent (%(default)s)")
parser.add_argument("--seed", type=int, help="replays a run; its own is printed")
parser.add_argument("--minutes", type=float, default=60, help="ends the run in any case (%(default)s)")
parser.add_argument("--attacks", action="store_true", help="carries out the known attacks instead")
options = parser.parse_args()
if options.attacks:
    for name in ATTACKS:
        with attacked() as node:
            node.create("t", PARTITIONS)
            print(f"{name}: an answer of {launch(node, name)} bytes", flush=True)
    raise SystemExit
seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
print(f"seed {seed}", flush=True)
tally, _ = attack(options.requests, seed, options.minutes * 60)
print(tally)
