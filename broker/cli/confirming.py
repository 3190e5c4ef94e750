"""Asking before something is gone for good."""

import sys

import typer

from pqbroker.broker.cli.refusals import CommandError, WrongInput


def confirm(question: str, yes: bool) -> None:
    """Go on when the user says so; WrongInput where nobody can be asked, CommandError when the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongInput(f"{question} nobody is there to ask; say --yes")
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was changed")
