"""`pqbroker-pipeline`, which needs PySpark: without it the package has no command but the one that says so."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 done or stopped, 1 failed (the reason on standard error); wrong usage exits with 2."""
    if find_spec("pyspark") is None:
        print("pqbroker-pipeline needs PySpark: pip install 'pqbroker[spark]'", file=sys.stderr)
        return FAILED
    from pqbroker.pipeline.command import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
