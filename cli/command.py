"""Declarations of commands: alone or in a family, each with an example that stands in its help and in its refusals."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pqbroker.cli.connection_security import COMMAND_CONFIG, USER
from pqbroker.cli.parsing import Parameter, parameters_of
from pqbroker.cli.profile_choice import PROFILE

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Command:
    """A function that a name calls, its help and an example."""

    run: Callable[..., None]
    help: str
    example: str
    parameters: tuple[Parameter, ...]
    is_hidden: bool = False


@dataclass(slots=True)
class Family:
    """Commands below a name, which alone lists them. One without a name of its own holds a single command."""

    help: str = ""
    commands: dict[str, Command] = field(default_factory=dict)


def declare(family: Family, name: str, example: str, *, hidden: bool = False) -> Callable[[F], F]:
    """Make a function a command: its docstring is the help, its annotations declare arguments and options.

    One that connects to a broker has the options of its profile and security too, which `app` reads.
    """

    def add(function: F) -> F:
        text = inspect.cleandoc(function.__doc__ or "")
        parameters = parameters_of(function)
        if any(each.name in ("broker", "http") for each in parameters):
            parameters = (*parameters, PROFILE, COMMAND_CONFIG, USER)
        family.commands[name] = Command(function, text, example, parameters, hidden)
        return function

    return add
