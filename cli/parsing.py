"""Options and arguments of a command: declared in the annotations of its function, read from what was typed."""

import os
import re
import types
import typing
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from pqbroker.cli.refusals import WrongInput, near

_NEGATIVE = re.compile(r"-[0-9]+(\.[0-9]+)?").fullmatch
Complete = Callable[[str, str], list[str]]
"""Returns the words that fit, given a broker's address and the beginning of a word."""
EnvironmentOf = Callable[[Mapping[str, list[Any]]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Option:
    """An option: how it is written, `--long` (as its Python name unless given) and `-s`, and what it may be.

    A flag has no metavar.
    """

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    environment: str | None = None
    complete: Complete | None = None
    is_hidden: bool = False
    also: tuple[str, ...] = ()
    """Names that are accepted and not shown: those of other programs. One of a list takes all values behind it."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A value that stands behind a command without a name."""

    metavar: str
    help: str
    least: float | None = None
    most: float | None = None
    complete: Complete | None = None


def option(*names: str, **fields: Any) -> Option:
    """An option with the fields of Option."""
    return Option(names, **fields)


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option or argument with its Python name, its type and its default."""

    name: str
    spec: Option | Argument
    kind: type
    is_list: bool
    default: Any
    is_required: bool

    @property
    def is_flag(self) -> bool:
        return self.kind is bool

    @property
    def label(self) -> str:
        """Return the name that refusals use."""
        return f"'{self.spec.names[0] if isinstance(self.spec, Option) else self.spec.metavar}'"

    @property
    def choices(self) -> list[str]:
        """Return the values that the parameter may have, where that is a list."""
        return [str(each.value) for each in self.kind] if issubclass(self.kind, Enum) else []

    def parse(self, text: str) -> Any:
        """A value; WrongInput."""
        if issubclass(self.kind, Enum):
            if text not in self.choices:
                raise WrongInput(f"{self.label}: {text!r} is not one of {', '.join(self.choices)}")
            return self.kind(text)
        if self.kind not in (int, float):
            return Path(text) if self.kind is Path else text
        try:
            number = self.kind(text)
        except ValueError:
            raise WrongInput(f"{self.label} is {text!r}; give a {'whole ' * (self.kind is int)}number") from None
        least, most = self.spec.least, self.spec.most
        if least is not None and not number >= least:
            raise WrongInput(f"{self.label} is {text}; give a number greater than or equal to {least:.15g}")
        if most is not None and not number <= most:
            raise WrongInput(f"{self.label} is {text}; give a number less than or equal to {most:.15g}")
        return number


def parameters_of(function: Callable[..., None]) -> tuple[Parameter, ...]:
    """Return the parameters that the annotations of a command's function declare."""
    defaults = dict(zip(reversed(_names(function)), reversed(function.__defaults__ or ()), strict=False))
    hints = typing.get_type_hints(function, include_extras=True)
    return tuple(_parameter(name, hints[name], defaults) for name in _names(function))


def _names(function: Callable[..., None]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def _parameter(name: str, hint: Any, defaults: Mapping[str, Any]) -> Parameter:
    kind, spec = typing.get_args(hint)
    if isinstance(spec, Option) and not spec.names:
        spec = replace(spec, names=(f"--{name.replace('_', '-')}",))
    if isinstance(kind, types.UnionType):
        kind = next(each for each in typing.get_args(kind) if each is not types.NoneType)
    is_list = typing.get_origin(kind) is list
    if is_list:
        (kind,) = typing.get_args(kind)
    return Parameter(name, spec, kind, is_list, defaults.get(name), name not in defaults)


@dataclass(slots=True)
class _Reading:
    """The part of a line that has been read so far."""

    parameters: Sequence[Parameter]
    options: dict[str, Parameter]
    given: dict[str, list[Any]] = field(default_factory=dict)
    positions: list[str] = field(default_factory=list)

    def give(self, parameter: Parameter, value: Any) -> None:
        self.given.setdefault(parameter.name, []).append(value)


def parse(
    parameters: Sequence[Parameter], words: Sequence[str], environment_of: EnvironmentOf = lambda given: os.environ
) -> dict[str, Any]:
    """Values by Python name; WrongInput. An option counts before its environment, that before the default.

    `environment_of` returns the environment, given the values that were typed.
    """
    reading = _Reading(parameters, {name: each for each in parameters for name in _option_names(each)})
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if word == "--":
            reading.positions += rest
            break
        if word.startswith("--"):
            _read_long(reading, word, rest)
        elif word.startswith("-") and word != "-" and not _NEGATIVE(word):
            _read_short(reading, word, rest)
        else:
            reading.positions.append(word)
    _assign(reading)
    environment = environment_of(reading.given)
    return {each.name: _value(each, reading.given.get(each.name), environment) for each in parameters}


def _option_names(parameter: Parameter) -> tuple[str, ...]:
    return (*parameter.spec.names, *parameter.spec.also) if isinstance(parameter.spec, Option) else ()


def _takes_all(parameter: Parameter, name: str) -> bool:
    """Return True if all values may stand behind one name, as other programs have it."""
    return parameter.is_list and isinstance(parameter.spec, Option) and name in parameter.spec.also


def _read_long(reading: _Reading, word: str, rest: deque[str]) -> None:
    name, equals, value = word.partition("=")
    parameter = _find(reading, name)
    if not parameter.is_flag:
        reading.give(parameter, parameter.parse(value if equals else _next(parameter, rest)))
        while _takes_all(parameter, name) and rest and not rest[0].startswith("-"):
            reading.give(parameter, parameter.parse(rest.popleft()))
    elif equals:
        raise WrongInput(f"{parameter.label} takes no value")
    else:
        reading.give(parameter, True)


def _read_short(reading: _Reading, word: str, rest: deque[str]) -> None:
    """Flags may stand together, and a value may stand at its letter: `-fn3`."""
    for at in range(1, len(word)):
        parameter = _find(reading, f"-{word[at]}")
        if parameter.is_flag:
            reading.give(parameter, True)
            continue
        reading.give(parameter, parameter.parse(word[at + 1 :] or _next(parameter, rest)))
        return


def _find(reading: _Reading, name: str) -> Parameter:
    if name not in reading.options:
        shown = [each for each in reading.options if each.startswith("--")]
        hint = near(name, shown) or "--help lists the options"
        raise WrongInput(f"no such option {name}; {hint}")
    return reading.options[name]


def _next(parameter: Parameter, rest: deque[str]) -> str:
    if not rest:
        raise WrongInput(f"{parameter.label} needs a value")
    return rest.popleft()


def _assign(reading: _Reading) -> None:
    """Give the words without a name to the arguments; one that takes several stands last."""
    left = list(reading.positions)
    for parameter in reading.parameters:
        if isinstance(parameter.spec, Option):
            continue
        taken = left if parameter.is_list else left[:1]
        for word in taken:
            reading.give(parameter, parameter.parse(word))
        left = left[len(taken) :]
    if left:
        raise WrongInput(f"unexpected {left[0]!r}: the command takes no more arguments")


def fallback(parameter: Parameter, environment: Mapping[str, str]) -> Any:
    """Return the value of a parameter that is not given: its environment, or else its default. Raises WrongInput."""
    spec = parameter.spec
    text = environment.get(spec.environment) if isinstance(spec, Option) and spec.environment else None
    return parameter.parse(text) if text else parameter.default


def _value(parameter: Parameter, given: list[Any] | None, environment: Mapping[str, str]) -> Any:
    is_argument = isinstance(parameter.spec, Argument)
    if given is not None and parameter.is_list:
        # An argument that is named twice means what it means once: done again, it would be refused.
        return list(dict.fromkeys(given)) if is_argument else given
    if given is not None:
        return given[-1]
    if parameter.is_required:
        raise WrongInput(f"missing {'argument' if is_argument else 'option'} {parameter.label}")
    return fallback(parameter, environment)
