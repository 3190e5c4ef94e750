"""The command line besides `serve`: all commands together, and what becomes of refusals. Exit statuses 0, 1, 2."""

import logging
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from pqbroker import __version__
from pqbroker.broker.cli.bench import add_bench
from pqbroker.broker.cli.command import form
from pqbroker.broker.cli.consume import add_consume
from pqbroker.broker.cli.crashtest import add_crashtest
from pqbroker.broker.cli.doctor import add_doctor
from pqbroker.broker.cli.group import app as group_app
from pqbroker.broker.cli.output import say
from pqbroker.broker.cli.produce import add_produce
from pqbroker.broker.cli.refusals import CommandError, OutputClosed, WrongInput
from pqbroker.broker.cli.tablet import app as tablet_app
from pqbroker.broker.cli.topic import app as topic_app

FAILED, WRONG = 1, 2

app = typer.Typer(
    help="A message broker that speaks Kafka's protocol, and commands for any Kafka broker.",
    pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"pqbroker {__version__}")
        raise typer.Exit()


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A message broker that speaks Kafka's protocol, and commands for any Kafka broker."""


@app.command("serve", add_help_option=False, context_settings={"ignore_unknown_options": True})
def serve() -> None:
    """Serve a data directory; `pqbroker serve --help` says how.

    It stands here to be listed and completed: `__main__` reads its options, without the imports of this file.
    """


app.add_typer(topic_app, name="topic")
add_produce(app)
add_consume(app)
app.add_typer(group_app, name="group")
app.add_typer(tablet_app, name="tablet")
add_bench(app)
add_doctor(app)
add_crashtest(app)


def main(arguments: Sequence[str]) -> int:
    """Run a command; its refusal becomes a line or two on standard error."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        return int(get_command(app).main(list(arguments), prog_name="pqbroker", standalone_mode=False) or 0)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        return _wrong(error.format_message(), "" if context is None else form(context))
    except WrongInput as error:
        return _wrong(str(error), "\n".join(getattr(error, "__notes__", [])))
    except CommandError as error:
        print(f"pqbroker: {error}", file=sys.stderr)
        return FAILED
    except typer.Abort:
        print("pqbroker: nothing was changed", file=sys.stderr)
        return FAILED
    except OutputClosed:
        return 0


def _wrong(what: str, right_form: str) -> int:
    print(f"pqbroker: {what[:1].lower()}{what[1:]}", *filter(None, [right_form]), sep="\n", file=sys.stderr)
    return WRONG
