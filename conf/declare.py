"""The words settings are declared in: a frozen dataclass per kind of thing, one `setting` per field.

Nothing is loaded here; `conf.load` reads files, environment and flags.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any, TypeVar


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


_INTEGERS = {Kind.INT: 31, Kind.SHORT: 15, Kind.LONG: 63}


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
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    effective: bool

    def parse(self, text: str) -> Any:
        """The value that `text` stands for; ConfigError when it is none or out of range."""
        value = self._convert(text.strip())
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Refuse a value outside the declared range or choices."""
        if self.low is not None and value < self.low:
            raise ConfigError(f"{self.name} is {value}; the least allowed is {self.low}")
        if self.high is not None and value > self.high:
            raise ConfigError(f"{self.name} is {value}; the most allowed is {self.high}")
        values = value if isinstance(value, tuple) else (value,)
        if self.choices and not all(item in self.choices for item in values):
            raise ConfigError(f"{self.name} is {self.format(value)!r}; choose from {', '.join(self.choices)}")

    def format(self, value: Any) -> str:
        """The text form of a value, as Kafka's tools show it; empty for a setting that is not set (None)."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def of(self, settings: Any) -> str:
        """The text form of this setting's value in a settings object."""
        return self.format(getattr(settings, self.attribute))

    def _convert(self, text: str) -> Any:
        if self.kind in (Kind.STRING, Kind.CLASS):
            return text
        if self.kind is Kind.LIST:
            return tuple(item.strip() for item in text.split(",") if item.strip())
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"{self.name} is {text!r}; give true or false")
            return text.lower() == "true"
        number = self._number(text)
        if self.kind in _INTEGERS and not -(1 << _INTEGERS[self.kind]) <= number < 1 << _INTEGERS[self.kind]:
            raise ConfigError(f"{self.name} is {text}, which does not fit a Kafka {self.kind.name.lower()}")
        return number

    def _number(self, text: str) -> float:
        try:
            number = float(text) if self.kind is Kind.DOUBLE else int(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or "_" in text:  # Python reads 1_000, Kafka's tools do not
            raise ConfigError(f"{self.name} is {text!r}; give a number")
        return number


def setting(
    name: str,
    kind: Kind,
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    effective: bool = True,
) -> Any:
    """Declare one field; a default of None means that nothing is set."""
    limits = {"low": low, "high": high, "choices": choices}
    return field(default=default, metadata={"name": name, "kind": kind, "doc": doc, "effective": effective, **limits})


def without_effect(name: str, kind: Kind, default: Any, doc: str, **limits: Any) -> Any:
    """Declare one field that is accepted, stored and described because Kafka has it, and changes nothing here."""
    return setting(name, kind, default, doc, effective=False, **limits)


S = TypeVar("S", bound=Hashable)


@cache
def declarations(settings: type) -> Mapping[str, Declaration]:
    """Every setting of a settings class by its outside name, in the order declared."""
    return {item.metadata["name"]: _declaration(item) for item in fields(settings)}


def parse(settings: type[S], texts: Mapping[str, str]) -> S:
    """Build a settings object from texts by name; ConfigError names an unknown name or a bad value."""
    known = declarations(settings)
    unknown = [name for name in texts if name not in known]
    if unknown:
        raise ConfigError(f"unknown setting {', '.join(sorted(unknown))}")
    return settings(**{known[name].attribute: known[name].parse(text) for name, text in texts.items()})


def set_in_vain(settings: Hashable) -> list[str]:
    """Names of the settings that were changed from their default and have no effect here."""
    known = declarations(type(settings)).values()
    return [one.name for one in known if not one.effective and getattr(settings, one.attribute) != one.default]


def _declaration(item: Field[Any]) -> Declaration:
    assert item.default is not MISSING
    return Declaration(attribute=item.name, default=item.default, **item.metadata)
