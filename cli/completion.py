"""Suggestions that a shell offers for the word being typed: commands, options, their values, topics and groups."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pqbroker.cli.app import COMMANDS, find_family, is_single
from pqbroker.cli.command import Command
from pqbroker.cli.connection_security import COMMAND_CONFIG, USER, use_security
from pqbroker.cli.help_text import shown
from pqbroker.cli.output import say
from pqbroker.cli.parsing import Argument, Option, Parameter, fallback
from pqbroker.cli.profile_choice import environment_of


def complete_line(environment: Mapping[str, str]) -> None:
    """Print the words that fit, one a line: COMP_WORDS is the line, COMP_CWORD the number of its last word."""
    words = environment.get("COMP_WORDS", "").split()
    number = int(environment.get("COMP_CWORD", "0") or 0)
    last = words[number] if number < len(words) else ""
    found = _offers(words[1:number], last)
    if found:
        say("\n".join(found))


def _offers(words: Sequence[str], last: str) -> list[str]:
    if not words:
        return _beginning(COMMANDS, last)
    name, *rest = words
    if name == "help" or name not in COMMANDS:
        return _beginning(COMMANDS, last) if words == ["help"] else []
    family = find_family(name)
    if is_single(name, family):
        return _of_command(family.commands[name], rest, last)
    if not rest:
        return _beginning((each for each, one in family.commands.items() if not one.is_hidden), last)
    return _of_command(family.commands[rest[0]], rest[1:], last) if rest[0] in family.commands else []


def _of_command(command: Command, words: Sequence[str], last: str) -> list[str]:
    options = {name: each for each in shown(command) if isinstance(each.spec, Option) for name in each.spec.names}
    given, taken = _split(options, words)
    before = options.get(words[-1]) if words else None
    if before is not None and not before.is_flag:
        return _values(before, given, last)
    if last.startswith("-"):
        return _beginning((name for name in options if name.startswith("--")), last)
    arguments = [each for each in command.parameters if isinstance(each.spec, Argument)]
    if not arguments or (taken >= len(arguments) and not arguments[-1].is_list):
        return []
    return _values(arguments[min(taken, len(arguments) - 1)], given, last)


def _split(options: Mapping[str, Parameter], words: Sequence[str]) -> tuple[dict[str, str], int]:
    """Values of the options given, by Python name, and how many words are arguments."""
    given: dict[str, str] = {}
    taken = 0
    rest = iter(words)
    for word in rest:
        option = options.get(word)
        if option is None:
            taken += not word.startswith("-")
        elif not option.is_flag:
            given[option.name] = next(rest, "")
    environment = environment_of({name: [value] for name, value in given.items() if value})
    for option in options.values():
        given.setdefault(option.name, str(fallback(option, environment) or ""))
    return given, taken


def _values(parameter: Parameter, given: Mapping[str, str], last: str) -> list[str]:
    if parameter.choices:
        return _beginning(parameter.choices, last)
    if parameter.spec.complete is None:
        return []
    file, user = given.get(COMMAND_CONFIG.name), given.get(USER.name)
    if file or user:
        use_security(Path(file) if file else None, user or None)
    return parameter.spec.complete(given.get("broker", ""), last)


def _beginning(words: Iterable[str], last: str) -> list[str]:
    return [word for word in words if word.startswith(last)]
