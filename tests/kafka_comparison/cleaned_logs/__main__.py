"""The comparison of the cleaners from the command line: python -m tests.kafka_comparison.cleaned_logs

It plays each script on Apache Kafka and writes what its cleaner left for `./test`, then compares what ours leaves. The
exit status is 1 where that differs.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from itertools import count, islice

from tests.kafka_comparison.cleaned_logs import recorded
from tests.kafka_comparison.cleaned_logs.cleaners import kafkas_cleaner, our_cleaner
from tests.kafka_comparison.cleaned_logs.differences import expected
from tests.kafka_comparison.cleaned_logs.playing import play
from tests.kafka_comparison.cleaned_logs.scripts import DRAWN, SCRIPTS, drawn


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_comparison.cleaned_logs", description=__doc__)
    parser.add_argument("--drawn", type=int, default=0, metavar="COUNT", help="random scripts beside those kept")
    further = {f"drawn {seed}": drawn(seed) for seed in islice(count(DRAWN.stop), parser.parse_args().drawn)}
    scripts = {**SCRIPTS, **further}
    started = time.monotonic()
    with kafkas_cleaner() as (side, clean):
        theirs = {name: play(side, topic, scripts[name], clean) for topic, name in named(scripts)}
    recorded.write({name: theirs[name] for name in SCRIPTS})
    with our_cleaner() as (side, clean):
        ours = {name: play(side, topic, scripts[name], clean) for topic, name in named(scripts)}
    different = [name for name, script in scripts.items() if ours[name] != expected(script, theirs[name])]
    for name in different:
        print(f"{name}: Kafka's cleaner leaves {theirs[name]}, ours {ours[name]}")
    cleanings = sum(len(script.stages) for script in scripts.values())
    print(
        f"{len(scripts)} scripts, {cleanings} cleanings, {len(different)} scripts with a difference that is not listed,"
        f" {time.monotonic() - started:.0f} s"
    )
    sys.exit(1 if different else 0)


def named(scripts: Iterable[str] = SCRIPTS) -> list[tuple[str, str]]:
    """Return a topic's name for each script."""
    return [(f"cleaned-{number}", name) for number, name in enumerate(scripts)]


if __name__ == "__main__":
    main()
