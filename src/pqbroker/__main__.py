"""The command line: `pqbroker COMMAND`. Errors become a line on standard error and an exit status.

`serve` and the other commands import nothing of each other: each must start at once.
"""

import sys
from collections.abc import Sequence

FAILED, WRONG = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 done, 1 failed, 2 wrong usage or settings; the reason stands on standard error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    try:
        return _serve(given) if given[:1] == ["serve"] else _run(given)
    except KeyboardInterrupt:
        return FAILED
    except Exception:
        import logging

        logging.getLogger(__name__).critical("the command failed; this is a defect", exc_info=True)
        return FAILED


def _run(arguments: Sequence[str]) -> int:
    from pqbroker.cli.app import main as run_command

    return run_command(arguments)


def _serve(arguments: Sequence[str]) -> int:
    import argparse

    from pqbroker.broker.node.serve import ServeError, WrongSettings, add_serve

    parser = argparse.ArgumentParser(prog="pqbroker")
    add_serve(parser.add_subparsers(metavar="COMMAND", required=True))
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except ServeError as error:
        print(f"pqbroker: {error}", file=sys.stderr)
        return WRONG if isinstance(error, WrongSettings) else FAILED
    return status


if __name__ == "__main__":
    sys.exit(main())
