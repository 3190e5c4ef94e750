"""The command line besides `serve`: all commands together, and their errors. Exit statuses 0, 1, 2.

A command's module is imported when the command is called: their libraries take longer than most of them run.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pqbroker import __version__
from pqbroker.cli.command import Command, Family
from pqbroker.cli.connection_security import COMMAND_CONFIG, USER, use_security
from pqbroker.cli.help_text import command_help, list_help, summary, usage
from pqbroker.cli.output import say
from pqbroker.cli.parsing import parse
from pqbroker.cli.profile_choice import PROFILE, environment_of
from pqbroker.cli.refusals import CommandError, OutputClosed, WrongInput, near

FAILED, WRONG = 1, 2
PROGRAM = "pqbroker"
HELP = ("-h", "--help")
COMPLETE = "_PQBROKER_COMPLETE"
"""Set by the shell when it asks for the words that may come next."""
_OF_TABLES, _OF_ROWS = "-table", "-rows"
"""`mount-table`, `trim-rows` and the like stand for `table mount` and `table trim`, as users of other dynamic tables
type them, and `delete-rows` for `table delete-rows`; `select-rows` takes a query too."""
_ABOUT = "A Kafka-compatible message broker, and commands for any Kafka broker."


def _produce() -> Family:
    from pqbroker.cli.commands.produce import app

    return app


def _consume() -> Family:
    from pqbroker.cli.commands.consume import app

    return app


def _topic() -> Family:
    from pqbroker.cli.commands.topic import app

    return app


def _group() -> Family:
    from pqbroker.cli.commands.group import app

    return app


def _cluster() -> Family:
    from pqbroker.cli.commands.cluster import app

    return app


def _top() -> Family:
    from pqbroker.cli.commands.top import app

    return app


def _sql() -> Family:
    from pqbroker.cli.commands.sql import app

    return app


def _tablet() -> Family:
    from pqbroker.cli.commands.tablet import app

    return app


def _table() -> Family:
    from pqbroker.cli.commands.table import app

    return app


def _queue() -> Family:
    from pqbroker.cli.commands.queue import app

    return app


def _features() -> Family:
    from pqbroker.cli.commands.features import app

    return app


def _transaction() -> Family:
    from pqbroker.cli.commands.transaction import app

    return app


def _acl() -> Family:
    from pqbroker.cli.commands.acl import app

    return app


def _quota() -> Family:
    from pqbroker.cli.commands.quota import app

    return app


def _cell() -> Family:
    from pqbroker.cli.commands.cell import cells

    return cells


def _bundle() -> Family:
    from pqbroker.cli.commands.cell import bundles

    return bundles


def _get() -> Family:
    from pqbroker.cli.commands.tree import getting

    return getting


def _list() -> Family:
    from pqbroker.cli.commands.tree import listing

    return listing


def _exists() -> Family:
    from pqbroker.cli.commands.tree import finding

    return finding


def _set() -> Family:
    from pqbroker.cli.commands.tree import setting

    return setting


def _bench() -> Family:
    from pqbroker.cli.commands.bench import app

    return app


def _doctor() -> Family:
    from pqbroker.cli.commands.doctor import app

    return app


def _backup() -> Family:
    from pqbroker.cli.commands.backup import app

    return app


def _restore() -> Family:
    from pqbroker.cli.commands.restore import app

    return app


def _profile() -> Family:
    from pqbroker.cli.commands.profile import app

    return app


def _user() -> Family:
    from pqbroker.cli.commands.user import app

    return app


def _token() -> Family:
    from pqbroker.cli.commands.token import app

    return app


def _certificate() -> Family:
    from pqbroker.cli.commands.certificate import app

    return app


def _crashtest() -> Family:
    from pqbroker.cli.commands.crashtest import app

    return app


def _completion() -> Family:
    from pqbroker.cli.commands.completion import app

    return app


COMMANDS: Mapping[str, tuple[str, Callable[[], Family]]] = {
    "serve": ("Run a broker on a data directory.", Family),
    "produce": ("Write a record for each line of standard input or of a file.", _produce),
    "consume": ("Print the records of topics, up to their current end.", _consume),
    "topic": ("List, create, describe, change and delete topics.", _topic),
    "group": ("List, describe, reset and delete consumer groups.", _group),
    "cluster": ("Show a cluster's nodes, health, settings and clients; restart its nodes.", _cluster),
    "top": ("Show topics by rate and groups by lag, refreshed until Ctrl-C.", _top),
    "sql": ("Query topics and tables with SQL.", _sql),
    "tablet": ("List, show, restart and move the tablets of a pqbroker.", _tablet),
    "table": ("Create, list, fill, read, alter, mount and drop tables of a pqbroker.", _table),
    "queue": ("Register consumers of queues, pull and push rows of queues, and trim what was read.", _queue),
    "transaction": (
        "List, show and abort the transactions of a pqbroker: over tables, and those of Kafka producers.", _transaction,
    ),
    "acl": ("Show, add and remove access rules (ACLs): who may do what with which resource.", _acl),
    "features": ("List and set the levels of Kafka's features that a pqbroker has.", _features),
    "quota": ("Show and change quotas of clients: bytes, processor time, partitions, connections.", _quota),
    "cell": ("List, create, move and remove the cells of a pqbroker.", _cell),
    "bundle": ("List, create, change and remove bundles of cells of a pqbroker.", _bundle),
    "get": ("Print what a path names: a table, a topic, a tablet, a cell, or an attribute (@) of one.", _get),
    "list": ("List the names below a path: tables and topics, and what runs them under //sys.", _list),
    "exists": ("Print true if a path names something, such as a table or an attribute; else false.", _exists),
    "set": ("Set an attribute of a table or of a bundle; one of a table takes effect at a remount.", _set),
    "bench": ("Measure writing and reading with one Python client.", _bench),
    "backup": ("Back up a running broker.", _backup),
    "restore": ("Restore a backup to a new data directory.", _restore),
    "doctor": ("Verify the data directory of a stopped broker.", _doctor),
    "crashtest": (
        "Kill a broker of its own under load, repeatedly, and verify every record and transaction.", _crashtest,
    ),
    "profile": ("Save clusters by name: their addresses, and the security of connections to them.", _profile),
    "user": ("Add, list and remove users, and set their passwords.", _user),
    "token": ("Make, list and revoke tokens, which log programs in over HTTP.", _token),
    "certificate": (
        "Make certificates for a broker and its clients, signed by an authority of their own.", _certificate,
    ),
    "completion": ("Print what makes your shell complete commands, topics and groups.", _completion),
}
"""Commands by name: what each does, and where it is declared. `serve` is `__main__`'s own. Tests compare the
sentences."""


def main(arguments: Sequence[str]) -> int:
    """Run a command; its refusal becomes a line or two on standard error."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if COMPLETE in os.environ:
            from pqbroker.cli.completion import complete_line

            complete_line(os.environ)
        else:
            _start(list(arguments))
    except WrongInput as error:
        print(f"{PROGRAM}: {error}", *getattr(error, "__notes__", []), sep="\n", file=sys.stderr)
        return WRONG
    except CommandError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return FAILED
    except OutputClosed:
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def find_family(name: str) -> Family:
    """Return the family that declares a command of the first level, or the commands below it."""
    return COMMANDS[name][1]()


def is_single(name: str, family: Family) -> bool:
    """Return True if a name is a command itself."""
    return family.commands.keys() == {name}


def _start(arguments: list[str]) -> None:
    name = arguments[0] if arguments else ""
    if name in ("", *HELP):
        options = [("--version", "Print the version.")]
        say(list_help(PROGRAM, _ABOUT, ((each, sentence) for each, (sentence, _) in COMMANDS.items()), options))
    elif name == "--version":
        say(f"{PROGRAM} {__version__}")
    elif name.endswith((_OF_TABLES, _OF_ROWS)) and (command := _of_tables(name, arguments[1:])) is not None:
        _call(f"{PROGRAM} {command[0]}", command[1], arguments[1:])
    elif name in COMMANDS:
        family = find_family(name)
        if is_single(name, family):
            _call(f"{PROGRAM} {name}", family.commands[name], arguments[1:])
        else:
            _choose(f"{PROGRAM} {name}", family, arguments[1:])
    else:
        raise _unknown(PROGRAM, name, COMMANDS)


def _of_tables(name: str, arguments: list[str]) -> tuple[str, Command] | None:
    """Return our command for one of other dynamic tables; None if it has no equivalent."""
    verb, commands = name.rpartition("-")[0], find_family("table").commands
    if verb == "select" and any(map(str.isspace, "".join(arguments[:1]))):
        return "sql", find_family("sql").commands["sql"]
    verb = name if name in commands else verb
    return (f"table {verb}", commands[verb]) if verb in commands else None


def _choose(path: str, family: Family, arguments: list[str]) -> None:
    """A command of a family."""
    name = arguments[0] if arguments else ""
    if name in ("", "help", *HELP):
        listed = {each: summary(one.help) for each, one in family.commands.items() if not one.is_hidden}
        say(list_help(path, family.help, listed.items()))
    elif name in family.commands:
        _call(f"{path} {name}", family.commands[name], arguments[1:])
    else:
        raise _unknown(path, name, family.commands)


def _unknown(path: str, name: str, known: Mapping[str, object]) -> WrongInput:
    what = "option" if name.startswith("-") else "command"
    error = WrongInput(f"no such {what} {name!r}; {near(name, known) or f'`{path}` alone lists the commands'}")
    error.add_note(f"usage: {path} COMMAND ...")
    return error


def _call(path: str, command: Command, words: list[str]) -> None:
    """Run a command; its refusal of what was typed shows the right form."""
    if not {*HELP}.isdisjoint(words[: words.index("--")] if "--" in words else words):
        say(command_help(path, command))
        return
    try:
        values = parse(command.parameters, words, environment_of)
        _check_text(values)
        values.pop(PROFILE.name, None)
        use_security(values.pop(COMMAND_CONFIG.name, None), values.pop(USER.name, None))
        try:
            command.run(**values)
        finally:
            use_security(None)
    except WrongInput as error:
        error.add_note(usage(path, command))
        error.add_note(f"example: {command.example}")
        raise


def _check_text(values: Mapping[str, Any]) -> None:
    """WrongInput for text that is no UTF-8, which no broker takes. The names of files may be any bytes."""
    if not values.keys() & {"broker", "http"}:
        return
    for value in values.values():
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and each != each.encode(errors="replace").decode():
                raise WrongInput(f"{each!r} is no UTF-8; give text")
