"""The command line: `pqbroker COMMAND`. Errors become a line on standard error and an exit status.

`serve` must be ready at once, so it is read with argparse; the libraries of the other commands are not even imported.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

from pqbroker.broker.serve import ServeError, WrongSettings, add_serve

FAILED, WRONG = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 done, 1 failed, 2 wrong usage or settings; the reason stands on standard error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except ServeError as error:
        print(f"pqbroker: {error}", file=sys.stderr)
        return WRONG if isinstance(error, WrongSettings) else FAILED
    except KeyboardInterrupt:
        return FAILED
    except Exception:
        logging.getLogger(__name__).critical("the command failed; this is a defect", exc_info=True)
        return FAILED


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] != ["serve"]:
        from pqbroker.broker.cli.app import main as run_command

        return run_command(arguments)
    parser = argparse.ArgumentParser(prog="pqbroker")
    add_serve(parser.add_subparsers(metavar="COMMAND", required=True))
    options = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
