"""Settings as Kafka's APIs show them: text values, where each came from, what it was before."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import Declaration, Effect, declarations
from pqbroker.conf.defaults import NODE_SETTINGS, topic_defaults
from pqbroker.conf.topic import TopicConfig


class Source(IntEnum):
    """Kafka's ConfigSource ids."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A place a value comes from: the name and text there."""

    name: str
    text: str
    source: Source


@dataclass(frozen=True, slots=True)
class ConfigText:
    """One setting in text, None where nothing is set; `synonyms`: where it could come from, the one in force first."""

    declaration: Declaration
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]

    @property
    def documentation(self) -> str:
        doc, effect = self.declaration.doc, self.declaration.effect
        if effect is Effect.NONE:
            return f"{doc} Accepted and stored; it has no effect in this broker."
        return doc if effect is Effect.FULL else f"{doc} Only the default is accepted."


def topic_texts(stored: Mapping[str, str], settings: BrokerSettings) -> Iterator[ConfigText]:
    """Every topic config: what was set for the topic (`stored`), what the node's settings make of it, the default."""
    of_node = topic_defaults(settings)
    for name, declaration in declarations(TopicConfig).items():
        synonyms = _of_node(NODE_SETTINGS.get(name, ()), settings)
        source = synonyms[0].source if synonyms else Source.DEFAULT
        value = of_node.get(name, declaration.format(declaration.default))
        if name in stored:
            value, source = declaration.format(declaration.parse(stored[name])), Source.DYNAMIC_TOPIC
            synonyms.insert(0, Synonym(name, value, source))
        yield ConfigText(declaration, value, source, tuple(synonyms))


def broker_texts(settings: BrokerSettings) -> Iterator[ConfigText]:
    """Every broker setting. One that differs from its default was set at start."""
    for name, declaration in declarations(BrokerSettings).items():
        synonyms = _of_node((name,), settings)
        first = synonyms[0] if synonyms else None
        yield ConfigText(
            declaration, first.text if first else None, first.source if first else Source.DEFAULT, tuple(synonyms)
        )


def _of_node(names: Sequence[str], settings: BrokerSettings) -> list[Synonym]:
    """What the node is set to under these names, then their defaults."""
    known = declarations(BrokerSettings)
    found = []
    for name in names:
        value, default = known[name].value_in(settings), known[name].default
        if value != default:
            found.append(Synonym(name, known[name].format(value), Source.STATIC_BROKER))
    for name in names:
        if known[name].default is not None:
            found.append(Synonym(name, known[name].format(known[name].default), Source.DEFAULT))
    return found
