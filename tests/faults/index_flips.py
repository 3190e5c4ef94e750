"""Bytes flipped at random in the tables of an index: `python -m tests.faults.index_flips --count 300 --seed 7`.

Never silent loss, never an endless start: see `flipped_index`. The log of the index is left alone.
"""

import argparse
import logging
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from tests.faults.flipped_index import Verdict, build, judge

_SMALL_FILE_WEIGHT = 2_000
"""Bytes that the manifest and CURRENT count as, when a place is chosen among those of all files."""


def run(scratch: Path, *, count: int, seed: int) -> Counter[str]:
    """Damage copies of one directory and count their fates. AssertionError, which names the flip."""
    whole = scratch / "whole"
    written = build(whole)
    source = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(count):
        copy = scratch / f"copy-{number}"
        shutil.copytree(whole, copy)
        file, position, bit = choose(copy, source)
        told = f"seed {seed}, flip {number}: bit {bit} of byte {position} of {file.name}"
        flip(file, position, bit)
        try:
            verdict = judge(copy, written)
        except Exception as failure:
            raise AssertionError(f"{told}: {failure}") from failure
        seen[kind_of(verdict)] += 1
        shutil.rmtree(copy)
    return seen


def choose(directory: Path, source: random.Random) -> tuple[Path, int, int]:
    """A bit of the tables, the manifest or CURRENT."""
    files = sorted(
        file
        for file in directory.glob("index-*/*")
        if file.suffix == ".sst" or file.name.startswith(("MANIFEST-", "CURRENT"))
    )
    weights = [file.stat().st_size if file.suffix == ".sst" else _SMALL_FILE_WEIGHT for file in files]
    (file,) = source.choices(files, weights)
    return file, source.randrange(file.stat().st_size), source.randrange(8)


def flip(file: Path, position: int, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << bit
    file.write_bytes(content)


def kind_of(verdict: Verdict) -> str:
    if verdict.refused:
        return "refused untouched"
    if verdict.was_lost:
        return "served in part after a loss"
    return "served in part" if verdict.unreadable else "served whole"


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.index_flips", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-flips-") as scratch:
        seen = run(Path(scratch), count=options.count, seed=options.seed)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
