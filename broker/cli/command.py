"""How commands are declared: a family of them, each with an example that stands in its help and in its refusals."""

import signal
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

from pqbroker.broker.cli.refusals import CommandError, WrongInput

F = TypeVar("F", bound=Callable[..., None])


class ExampleCommand(TyperCommand):
    """A command whose refusals show its right form, and that SIGTERM ends as Ctrl-C does: what it made is removed.

    Typer would end the process itself for the rest.
    """

    def invoke(self, ctx: Any) -> Any:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            _check_text(ctx.params)
            return super().invoke(ctx)
        except WrongInput as error:
            error.add_note(form(ctx))
            raise
        except KeyboardInterrupt:
            raise CommandError("interrupted") from None
        finally:
            signal.signal(signal.SIGTERM, before)


def _check_text(parameters: Mapping[str, Any]) -> None:
    """WrongInput for what a broker cannot be asked, since it is no UTF-8. The names of files may be any bytes."""
    if not parameters.keys() & {"broker", "http"}:
        return
    for value in parameters.values():
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and each != each.encode(errors="replace").decode():
                raise WrongInput(f"{each!r} is no UTF-8; give text")


def family(help_text: str) -> typer.Typer:
    """A command with commands below it."""
    return typer.Typer(help=help_text, no_args_is_help=False, add_completion=False)


def declare(app: typer.Typer, name: str, example: str) -> Callable[[F], F]:
    """Make a function a command."""
    return app.command(name, cls=ExampleCommand, epilog=f"Example: {example}")


def form(ctx: Any) -> str:
    """The lines that show how a command is written."""
    lines = [ctx.get_usage().replace("Usage:", "usage:", 1)]
    epilog = getattr(ctx.command, "epilog", None)
    if epilog:
        lines.append(epilog.replace("Example:", "example:", 1))
    return "\n".join(" ".join(line.split()) for line in lines)
