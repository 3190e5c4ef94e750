"""A Python for Spark's workers: its `-m pyspark.daemon` has imported what workers import before it forks them.

Spark forks a worker for each step of a query, and each would import the same again: most of what such a step costs.
Spark puts a zip of PySpark first on the path, which has no compiled modules: the installed package is taken instead.
"""

import runpy
import stat
import sys
from pathlib import Path

_DAEMON = "pyspark.daemon"


def executable(directory: Path) -> Path:
    """Write the program that Spark starts as its Python, and return where it is."""
    program = directory / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n', encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def main() -> None:
    """Run a module as `python -m MODULE ARGUMENT…` does."""
    _, option, module, *arguments = sys.argv
    assert option == "-m", sys.argv
    sys.path.pop(0)  # this directory, in which modules have names of others
    sys.path[:] = [place for place in sys.path if Path(place).name != "pyspark.zip"]
    if module == _DAEMON:

        import pqbroker.pipeline.ordered_tables.source  # noqa: F401 (what workers load)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
