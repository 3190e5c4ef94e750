"""The command line: `pqbroker COMMAND`. Errors become a line on standard error and an exit status.

`serve` and the other commands import nothing of each other: each must start at once.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

FAILED, WRONG = 1, 2
_SERVE, _SERVE_EXAMPLE = "pqbroker serve", "pqbroker serve --data ./data"


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

    from pqbroker.broker.node.serve import ServeError, add_serve

    class ServeParser(argparse.ArgumentParser):
        """Writes its help and its refusals in the form of the other commands."""

        def format_help(self) -> str:
            from pqbroker.cli.help_text import options_help

            shown = [(" ".join([*one.option_strings, str(one.metavar)]), str(one.help)) for one in self._actions[1:]]
            return options_help(_SERVE, self.description or "", shown, _SERVE_EXAMPLE) + "\n"

        def error(self, message: str) -> NoReturn:
            self.exit(WRONG, f"pqbroker: {message}\nusage: {_SERVE} [OPTION]...\nexample: {_SERVE_EXAMPLE}\n")

    parser = ServeParser(prog="pqbroker", allow_abbrev=False)
    add_serve(parser.add_subparsers(metavar="COMMAND", required=True, parser_class=ServeParser))
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except ServeError as error:
        print(f"pqbroker: {error}", file=sys.stderr)
        return error.status
    return status


if __name__ == "__main__":
    sys.exit(main())
