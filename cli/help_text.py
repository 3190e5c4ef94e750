"""Plain text of 80 columns: the help that `--help` prints, and the lines that a refusal shows."""

import textwrap
from collections.abc import Iterable, Iterator

from pqbroker.cli.command import Command
from pqbroker.cli.parsing import Argument, Option, Parameter

WIDTH = 80
_INDENT = "  "
_NAME_WIDTH_MAX = 28
"""A longer name has its text on the next line."""
_HELP = ("-h, --help", "Print this text.")


def command_help(path: str, command: Command) -> str:
    """The help of one command."""
    parts = [usage(path, command), *_paragraphs(command.help)]
    for title, kind in (("arguments", Argument), ("options", Option)):
        listed = [(written(each), meaning(each)) for each in shown(command) if isinstance(each.spec, kind)]
        parts += _section(title, [*listed, _HELP] if kind is Option else listed)
    parts.append(f"example:\n{_INDENT}{command.example}")
    return "\n\n".join(parts)


def options_help(path: str, text: str, options: Iterable[tuple[str, str]], example: str) -> str:
    """The help of a command that has nothing but options, each with its text."""
    parts = [f"usage: {path} [OPTION]...", *_paragraphs(text), *_section("options", [*options, _HELP])]
    return "\n\n".join([*parts, f"example:\n{_INDENT}{example}"])


def list_help(
    path: str, text: str, commands: Iterable[tuple[str, str]], options: Iterable[tuple[str, str]] = ()
) -> str:
    """The help of what has commands below it: their names, and a sentence on each."""
    parts = [f"usage: {path} COMMAND ...", *_paragraphs(text), *_section("commands", commands)]
    parts += _section("options", [*options, _HELP])
    parts.append(f"`{path} COMMAND --help` explains a command.")
    return "\n\n".join(parts)


def usage(path: str, command: Command) -> str:
    """Return one line that shows how the command is written."""
    arguments = [written(each) for each in command.parameters if isinstance(each.spec, Argument)]
    return " ".join(("usage:", path, "[OPTION]...", *arguments))


def summary(text: str) -> str:
    """The first sentence of a help text."""
    return text.partition("\n")[0].partition(". ")[0].removesuffix(".") + "."


def shown(command: Command) -> list[Parameter]:
    """The arguments and options that are not hidden."""
    return [each for each in command.parameters if not (isinstance(each.spec, Option) and each.spec.is_hidden)]


def written(parameter: Parameter) -> str:
    """An argument or an option as it is typed."""
    if isinstance(parameter.spec, Argument):
        return f"{parameter.spec.metavar}{'...' if parameter.is_list else ''}"
    names = ", ".join(sorted(parameter.spec.names, key=len))
    return names if parameter.is_flag else f"{names} {'|'.join(parameter.choices) or parameter.spec.metavar}"


def meaning(parameter: Parameter) -> str:
    """Return a parameter's help text, with the default."""
    default = parameter.default
    if isinstance(parameter.spec, Argument) or default in (None, False, []):
        return parameter.spec.help
    return f"{parameter.spec.help} Default: {getattr(default, 'value', default)}."


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield textwrap.fill(" ".join(paragraph.split()), WIDTH)


def _section(title: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    """A list of names and their texts; nothing where there are none."""
    listed = list(entries)
    if not listed:
        return []
    width = min(_NAME_WIDTH_MAX, max(len(name) for name, _ in listed))
    return [f"{title}:\n" + "\n".join(line for name, text in listed for line in _entry(name, text, width))]


def _entry(name: str, text: str, width: int) -> Iterator[str]:
    beside = _INDENT + " " * width + _INDENT
    lines = textwrap.wrap(text, WIDTH - len(beside), break_long_words=False, break_on_hyphens=False)
    if len(name) > width:
        yield _INDENT + name
    else:
        yield f"{_INDENT}{name:{width}}{_INDENT}{lines.pop(0)}".rstrip()
    for line in lines:
        yield beside + line
