"""The question before something is destroyed."""

import sys

from pqbroker.cli.profile_choice import profile
from pqbroker.cli.refusals import CommandError, WrongInput


def confirm(question: str, yes: bool) -> None:
    """Return when the user agrees; WrongInput without a terminal to ask at, CommandError when the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongInput(f"{question} standard input is no terminal; say --yes")
    found = profile()
    where = "" if found is None else f" (profile {found.name}, {found.broker})"
    print(f"{question}{where} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")
