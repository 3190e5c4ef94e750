"""The command line: `pqbroker COMMAND`. Errors become one line on standard error and an exit status."""

import argparse
import logging
import sys
from collections.abc import Sequence

from pqbroker import __version__
from pqbroker.broker.serve import ServeError, add_serve

FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 done, 1 failed (the reason on standard error); wrong usage exits with 2."""
    parser = argparse.ArgumentParser(prog="pqbroker", description="A message broker that speaks Kafka's protocol.")
    parser.add_argument("--version", action="version", version=f"pqbroker {__version__}")
    add_serve(parser.add_subparsers(metavar="COMMAND", required=True))
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except ServeError as error:
        print(f"pqbroker: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    except Exception:
        logging.getLogger(__name__).critical("the broker failed; this is a defect", exc_info=True)
        return FAILED
    return status


if __name__ == "__main__":
    sys.exit(main())
