"""The hot figures of this tree and of an earlier commit side by side: each measurement is a process of its own."""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.earlier import earlier_tree, importing_from

_PASSES = 3
"""Of both commits, in turn."""
_HERE = Path(__file__).parents[2]
_FIRST_HARNESS = "bb07950"
"""Measures commits that have no harness: the last before modules moved, so that it finds theirs."""

Measured = dict[str, dict[str, float]]
"""Figures by what was sent."""
Columns = list[tuple[str, Measured]]
"""Measurements by the name of what was measured."""


def compare(commit: str, passes: int = _PASSES) -> Columns:
    """This tree and an earlier commit, each so often, in turn. Raises UnknownCommit."""
    runs: dict[str, list[Measured]] = {commit: [], "this one": []}
    with earlier_tree(commit) as tree, _harness_of(commit, tree) as harness:
        for _ in range(passes):
            with importing_from(tree):
                runs[commit].append(_run_apart(harness))
            runs["this one"].append(_run_apart(_HERE))
    return [(name, _medians(found)) for name, found in runs.items()]


@contextmanager
def _harness_of(commit: str, tree: Path) -> Iterator[Path]:
    """Where files lie that can measure a commit: its own, as modules move; those of a later one, where it has none."""
    if (tree / "tests" / "benchmarks" / "hot.py").exists():
        yield tree
        return
    print(f"{commit} has no tests/benchmarks/hot.py of its own: that of {_FIRST_HARNESS} measures it", file=sys.stderr)
    with earlier_tree(_FIRST_HARNESS) as later:
        yield later


def alone() -> Columns:
    """This tree, in a process of its own."""
    return [("", _run_apart(_HERE))]


def _run_apart(tree: Path) -> Measured:
    command = [sys.executable, "-m", "tests.benchmarks.hot", "--json"]
    ran = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
    found: Measured = json.loads(ran.stdout)
    return found


def _medians(runs: list[Measured]) -> Measured:
    return {
        sent: {figure: statistics.median(run[sent][figure] for run in runs) for figure in figures}
        for sent, figures in runs[0].items()
    }


def lines(columns: Columns) -> Iterator[str]:
    """The figures of every exchange that the last column has; an earlier harness may know fewer."""
    for sent, figures in columns[-1][1].items():
        yield sent
        for figure in figures:
            texts = (f"{found[sent][figure]:>10.1f}" if sent in found else f"{'-':>10}" for _, found in columns)
            yield f"  {figure:<22}" + "".join(
                f"{text} {name}" for text, (name, _) in zip(texts, columns, strict=True)
            )
