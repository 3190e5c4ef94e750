"""Settings as Kafka's APIs show them: text values, where each came from, what it was before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

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
    """One setting in text; `values` and their sources, the one in force first."""

    declaration: Declaration
    values: tuple[tuple[str, Source], ...]

    @property
    def value(self) -> str:
        return self.values[0][0]

    @property
    def source(self) -> Source:
        return self.values[0][1]

    @property
    def documentation(self) -> str:
        if self.declaration.effective:
            return self.declaration.doc
        return f"{self.declaration.doc} Accepted and stored; it has no effect in this broker."


def topic_texts(stored: Mapping[str, str], settings: BrokerSettings) -> Iterator[ConfigText]:
    """Every topic config: what was set for the topic (`stored`), what the node's settings make of it, the default."""
    of_node = topic_defaults(settings)
    for name, declaration in declarations(TopicConfig).items():
        default = declaration.format(declaration.default)
        values = [(default, Source.DEFAULT)]
        if of_node.get(name, default) != default:
            values.insert(0, (of_node[name], Source.STATIC_BROKER))
        if name in stored:
            values.insert(0, (declaration.format(declaration.parse(stored[name])), Source.DYNAMIC_TOPIC))
        yield ConfigText(declaration, tuple(values))


def broker_texts(settings: BrokerSettings) -> Iterator[ConfigText]:
    """Every broker setting. One that differs from its default was set at start."""
    for declaration in declarations(BrokerSettings).values():
        default, value = declaration.format(declaration.default), declaration.of(settings)
        static = ((value, Source.STATIC_BROKER),) if value != default else ()
        yield ConfigText(declaration, (*static, (default, Source.DEFAULT)))
