"""Words in which settings are declared: a frozen dataclass per kind of thing, one `setting` per field, and `rows` for
the many without effect. A table is read for these, since a class with a field for each takes 20 ms of each start.

Nothing is loaded here; `conf.load` reads files, environment and flags.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import Enum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Kind(Enum):
    """Type of a setting; the values are Kafka's DescribeConfigs types."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Effect(Enum):
    """The effect of giving a setting."""

    FULL = "does what it says"
    NONE = "accepted, and without effect"
    REFUSED = "refused, but for its default"


_INTEGERS = {Kind.INT: 31, Kind.SHORT: 15, Kind.LONG: 63}


_EFFECTS = {"#": Effect.NONE, "!": Effect.REFUSED, "=": Effect.FULL}
"""Effects of the rows of a table, by the first character of the line above them."""
_NAME_CHARACTERS_MAX = 200
"""Characters of an unknown name that are compared with those of settings."""
LISTENER_PREFIX = "listener.name."
OF_ONE_LISTENER = re.compile(
    r"[^.]+\.(?:[a-z0-9-]+\.)??((?:ssl\.|sasl\.|principal\.builder\.class$|connections\.max\.reauth\.ms$).*)"
)
"""Matches the rest of a name behind the prefix; its first part is the name that all listeners have."""


class ConfigError(ValueError):
    """A name or value that cannot be set; the text names cause and cure."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One setting: its name on the outside, its limits, and what it does."""

    name: str
    attribute: str
    kind: Kind
    default: Any
    doc: str
    low: float | None = None
    """Lower limit. For a list it is 0 and means that the items are whole numbers from 0 on."""
    high: float | None = None
    choices: tuple[str, ...] = ()
    effect: Effect = Effect.FULL
    pattern: str = ""
    """A regular expression that the value, or each item of a list, matches as a whole."""
    is_row: bool = False
    """The attribute holds the rows of a table, or of listeners, that were given, not this value alone."""
    earlier: str = ""
    """Name in the version before, which is still accepted. A store of settings keeps this name."""
    read: Callable[[str], object] | None = None
    """Reads a text that has a form of its own; ValueError when it has not."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return every name that is accepted."""
        return (self.name, self.earlier) if self.earlier else (self.name,)

    @property
    def stored_name(self) -> str:
        return self.earlier or self.name

    @property
    def meaning(self) -> str:
        """`doc`, and the earlier name."""
        return f"{self.doc} Earlier name, still accepted: {self.earlier}." if self.earlier else self.doc

    @property
    def effective(self) -> bool:
        return self.effect is Effect.FULL

    def parse(self, text: str) -> Any:
        """The value that `text` stands for; ConfigError when it is none or out of range."""
        value = convert(self.name, self.kind, text)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Refuse a value outside the declared range or choices."""
        if self.effect is Effect.REFUSED and value != self.default:
            cause = self.doc[0].lower() + self.doc[1:].rstrip(".")
            raise ConfigError(f"{self.name} cannot be set: {cause}; leave it out")
        if self.kind is Kind.LIST and self.low is not None:
            self._check_numbers(value)
        elif self.low is not None and value < self.low:
            raise ConfigError(f"{self.name} is {value}; the least allowed is {self.low}")
        if self.high is not None and value > self.high:
            raise ConfigError(f"{self.name} is {value}; the most allowed is {self.high}")
        if self.read is not None:
            try:
                self.read(value)
            except ValueError as wrong:
                raise ConfigError(f"{self.name} is {self.format(value)!r}: {wrong}") from None
        values = value if isinstance(value, tuple) else (value,)
        if self.choices and not all(item in self.choices for item in values):
            choices = ", ".join(choice or "'' (empty)" for choice in self.choices)
            raise ConfigError(f"{self.name} is {self.format(value)!r}; choose from {choices}")
        if self.pattern and not all(re.fullmatch(self.pattern, item) for item in values):
            raise ConfigError(f"{self.name} is {self.format(value)!r}; it must have the form {self.pattern}")

    def _check_numbers(self, items: Iterable[str]) -> None:
        """Items are compared as texts, so a number has one form: no sign, no zero before it."""
        for item in items:
            if not (item.isascii() and item.isdecimal()) or (item[0] == "0" and item != "0"):
                raise ConfigError(f"{self.name} has {item!r}; give numbers from {self.low}, such as 0,3")

    def format(self, value: Any) -> str:
        """The text form of a value, as Kafka's tools show it; empty for a setting that is not set (None)."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def value_in(self, settings: Any) -> Any:
        """Return this setting's value in a settings object."""
        held = getattr(settings, self.attribute)
        return dict(held).get(self.name, self.default) if self.is_row else held

    def of(self, settings: Any) -> str:
        """The text form of this setting's value in a settings object."""
        return self.format(self.value_in(settings))


class Limits(TypedDict, total=False):
    """The values that a setting may have, and what else a declaration says."""

    low: float | None
    high: float | None
    choices: tuple[str, ...]
    pattern: str
    effect: Effect
    earlier: str
    read: Callable[[str], object] | None


def setting(name: str, kind: Kind, default: Any, doc: str, **limits: Unpack[Limits]) -> Any:
    """Declare one field; a default of None means that nothing is set."""
    return field(default=default, metadata={"name": name, "kind": kind, "doc": doc, **limits})


def without_effect(name: str, kind: Kind, default: Any, doc: str, **limits: Unpack[Limits]) -> Any:
    """Declare one field that is accepted, stored and described because Kafka has it, and changes nothing here."""
    limits["effect"] = Effect.NONE
    return setting(name, kind, default, doc, **limits)


def rows(table: str) -> Any:
    """Declare a field for settings without effect that are lines of a table: `name | type | default | allowed`.

    A line `# …` is the documentation of those below it, which are accepted; below `! …` they are refused. Below `= …`
    they have their effect, and the documentation of each is its last cell. What is not set by default is written
    `null`, what is allowed as in `1..9` or as words. The field's value is the name and value of each that was given:
    tuple[tuple[str, Any], ...].
    """
    return field(default=(), metadata={"table": table})


def of_listeners() -> Any:
    """Declare a field for settings of single listeners: `listener.name.NAME.` before a name of `OF_ONE_LISTENER`.

    A SASL mechanism may stand between them, as in Kafka. The field's value is as that of `rows`.
    """
    return field(default=(), metadata={"prefix": LISTENER_PREFIX})


def convert(name: str, kind: Kind, text: str) -> Any:
    """The value of that kind that a text stands for; ConfigError."""
    text = text.strip()
    if kind in (Kind.STRING, Kind.CLASS, Kind.PASSWORD):
        return text
    if kind is Kind.LIST:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    if kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} is {text!r}; give true or false")
        return text.lower() == "true"
    number = _number(name, kind, text)
    if kind in _INTEGERS and not -(1 << _INTEGERS[kind]) <= number < 1 << _INTEGERS[kind]:
        raise ConfigError(f"{name} is {text}, which does not fit a Kafka {kind.name.lower()}")
    return number


def _number(name: str, kind: Kind, text: str) -> float:
    try:
        number = float(text) if kind is Kind.DOUBLE else int(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or "_" in text:  # Python reads 1_000, Kafka's tools do not
        raise ConfigError(f"{name} is {text!r}; give a number")
    return number


S = TypeVar("S", bound="DataclassInstance")


@cache
def declarations(settings: type) -> Mapping[str, Declaration]:
    """Return every setting of a settings class by its outside name, in the order declared."""
    return {one.name: one for item in fields(settings) for one in _declared(item)}


def declared(settings: type, name: str) -> Declaration | None:
    """The setting of that name, be it the earlier one; None when there is none."""
    found = declarations(settings).get(_now_called(settings).get(name, name))
    return _of_one_listener(settings, name) if found is None and name.startswith(LISTENER_PREFIX) else found


def current_names(settings: type, texts: Mapping[str, str]) -> dict[str, str]:
    """The texts by the names of now; one that was given under both names is the one under the name of now."""
    now_called = _now_called(settings)
    earlier = {now_called[name]: text for name, text in texts.items() if name in now_called}
    return earlier | {name: text for name, text in texts.items() if name not in now_called}


def superseded(settings: type, names: Iterable[str]) -> dict[str, str]:
    """Return those of the names that are earlier ones, each with its name of now, where that is among the names too."""
    given, now_called = set(names), _now_called(settings)
    return {name: now_called[name] for name in sorted(given & now_called.keys()) if now_called[name] in given}


def stored_names(settings: type, texts: Mapping[str, str]) -> dict[str, str]:
    """The texts by the names of the store, which an earlier version reads too."""
    known = declarations(settings)
    current = current_names(settings, texts)
    return {known[name].stored_name if name in known else name: text for name, text in current.items()}


def parse(settings: type[S], texts: Mapping[str, str]) -> S:
    """Build a settings object from texts by name; ConfigError names an unknown name or a bad value."""
    return changed(settings(), texts)


def changed(settings: S, texts: Mapping[str, str]) -> S:
    """The settings with those of the texts in their place; ConfigError as from `parse`."""
    if not texts:
        return settings
    texts = current_names(type(settings), texts)
    known = {name: declared(type(settings), name) for name in texts}
    unknown = [name for name, one in known.items() if one is None]
    if unknown:
        near = _nearest(type(settings), unknown[0][:_NAME_CHARACTERS_MAX]) if len(unknown) == 1 else ""
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"unknown setting {', '.join(sorted(unknown))}{hint}")
    values: dict[str, Any] = {}
    for name, text in texts.items():
        one = known[name]
        assert one is not None
        value = one.parse(text)
        if one.is_row:
            given = dict(values.get(one.attribute, getattr(settings, one.attribute)))
            value = tuple({**given, name: value}.items())
        values[one.attribute] = value
    return replace(settings, **values)


@lru_cache(maxsize=256)  # a client that misspells a name does so for each of its topics
def _nearest(settings: type[S], name: str) -> str:
    """Return the name that an unknown one is most like; empty: none is."""
    near = difflib.get_close_matches(name, declarations(settings), n=1)
    return near[0] if near else ""


def set_in_vain(settings: "DataclassInstance") -> list[str]:
    """Names of the settings that were changed from their default and have no effect here."""
    known = declarations(type(settings)).values()
    return [one.name for one in known if not one.effective and one.value_in(settings) != one.default]


def without_listener(name: str) -> str:
    """Return the name that a setting of one listener has for all: without prefix, listener and SASL mechanism."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    found = OF_ONE_LISTENER.match(name, len(LISTENER_PREFIX))
    return found[1] if found else name


def _of_one_listener(settings: type, name: str) -> Declaration | None:
    base = declarations(settings).get(without_listener(name))
    attributes = [item.name for item in fields(settings) if item.metadata.get("prefix") == LISTENER_PREFIX]
    if base is None or not attributes:
        return None
    return replace(base, name=name, attribute=attributes[0], is_row=True, earlier="")


@cache
def _now_called(settings: type) -> Mapping[str, str]:
    """Names by the earlier name."""
    return {one.earlier: one.name for one in declarations(settings).values() if one.earlier}


def _declared(item: Field[Any]) -> Iterator[Declaration]:
    """The setting of a field, or those of its table."""
    if "prefix" in item.metadata:
        return
    if "table" in item.metadata:
        yield from _read(item.metadata["table"], item.name)
    else:
        assert item.default is not MISSING
        yield Declaration(attribute=item.name, default=item.default, **item.metadata)


def _read(table: str, attribute: str) -> Iterator[Declaration]:
    effect, doc = Effect.NONE, ""
    for line in table.splitlines():
        if line[0] in _EFFECTS:
            effect, doc = _EFFECTS[line[0]], line[2:]
            continue
        name, kind_name, text, *allowed = (cell.strip() for cell in line.split("|"))
        if effect is Effect.FULL:
            doc = allowed.pop()
        kind = Kind[kind_name.upper()]
        default = None if text == "null" else convert(name, kind, text)
        low, high, choices = _limits(*allowed)
        yield Declaration(name, attribute, kind, default, doc, low, high, choices, effect, is_row=True)


def _limits(allowed: str = "") -> tuple[int | None, int | None, tuple[str, ...]]:
    least, dots, most = allowed.partition("..")
    if not dots:
        return None, None, tuple(allowed.split())
    return int(least) if least else None, int(most) if most else None, ()
