"""Settings as Kafka's APIs show them: text values, where each came from, what it was before."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import Declaration, declarations
from pqbroker.conf.defaults import topic_defaults
from pqbroker.conf.topic import TopicConfig


class Source(IntEnum):
    """Kafka's ConfigSource ids."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigText:
    """One setting's value in text, its source, and its default in text."""

    declaration: Declaration
    value: str
    source: Source
    default: str

    @property
    def documentation(self) -> str:
        if self.declaration.effective:
            return self.declaration.doc
        return f"{self.declaration.doc} Accepted and stored; it has no effect in this broker."

    @property
    def synonyms(self) -> Iterator[tuple[str, Source]]:
        """Values and sources, the one in force first."""
        if self.source is not Source.DEFAULT:
            yield self.value, self.source
        yield self.default, Source.DEFAULT


def topic_texts(stored: Mapping[str, str], settings: BrokerSettings) -> Iterable[ConfigText]:
    """Every topic config; `stored` is what was set for the topic, the rest is the node's to say or Kafka's default."""
    of_node = topic_defaults(settings)
    for name, declaration in declarations(TopicConfig).items():
        default = declaration.format(declaration.default)
        inherited = of_node.get(name, default)
        if name in stored:
            value = declaration.format(declaration.parse(stored[name]))
            yield ConfigText(declaration, value, Source.DYNAMIC_TOPIC, inherited)
        elif inherited != default:
            yield ConfigText(declaration, inherited, Source.STATIC_BROKER, default)
        else:
            yield ConfigText(declaration, default, Source.DEFAULT, default)


def broker_texts(settings: BrokerSettings) -> Iterable[ConfigText]:
    """Every broker setting. One that differs from its default was set at start."""
    for declaration in declarations(BrokerSettings).values():
        value: Any = getattr(settings, declaration.attribute)
        source = Source.DEFAULT if value == declaration.default else Source.STATIC_BROKER
        yield ConfigText(declaration, declaration.format(value), source, declaration.format(declaration.default))
