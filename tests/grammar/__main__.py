"""Random requests to a fresh broker: `python -m tests.grammar --requests 1000000 --seed 7`.

`--attacks` carries out each attack that was seen to work instead, each against a fresh broker; `--lists` sends every
request with each of its lists as long as it may be.
"""

import argparse
import random

from tests.grammar.attacks import ATTACKS, PARTITIONS, launch
from tests.grammar.long_lists import ask, long_lists
from tests.grammar.run import attack
from tests.support.attacked import attacked

parser = argparse.ArgumentParser(prog="python -m tests.grammar", description=__doc__)
parser.add_argument("--requests", type=int, default=100_000, help="how many are sent (%(default)s)")
parser.add_argument("--seed", type=int, help="replays a run; its own is printed")
parser.add_argument("--minutes", type=float, default=60, help="ends the run in any case (%(default)s)")
parser.add_argument("--attacks", action="store_true", help="carries out the known attacks instead")
parser.add_argument("--lists", action="store_true", help="sends every list of every request at its greatest length")
options = parser.parse_args()
if options.attacks:
    for name in ATTACKS:
        with attacked() as node:
            node.create("t", PARTITIONS)
            print(f"{name}: an answer of {launch(node, name)} bytes", flush=True)
    raise SystemExit
if options.lists:
    with attacked() as node:
        node.create("t", PARTITIONS)
        for asked in long_lists():
            print(f"{asked}: an answer of {ask(node, asked)} bytes; {node.look()}", flush=True)
    raise SystemExit
seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
print(f"seed {seed}", flush=True)
attack(options.requests, seed, options.minutes * 60)
