"""Settings as Kafka's APIs show them: text values, where each came from, what it was before."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import Declaration, Effect, declarations
from pqbroker.conf.defaults import NODE_SETTINGS, topic_defaults, wrong_texts
from pqbroker.conf.dynamic import Layers
from pqbroker.conf.topic import TopicConfig


class Source(IntEnum):
    """Kafka's ConfigSource ids."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A place a value comes from: the name and text there."""

    name: str
    text: str | None
    source: Source


_STAND_INS = {names[0]: names for names in NODE_SETTINGS.values()}
"""Where Kafka looks for a setting of a broker: its coarser units too."""


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


def topic_texts(stored: Mapping[str, str], layers: Layers) -> Iterator[ConfigText]:
    """Every topic config: what was set for the topic (`stored`), what the node's settings make of it, the default.

    A stored text that cannot be is shown as it is, for whoever is to mend it.
    """
    of_node = topic_defaults(layers.in_force)
    wrong = wrong_texts(stored)
    for name, declaration in declarations(TopicConfig).items():
        synonyms = _of_node(NODE_SETTINGS.get(name, ()), layers)
        source = synonyms[0].source if synonyms else Source.DEFAULT
        value = of_node.get(name, declaration.format(declaration.default))
        if name in stored:
            text = stored[name]
            value = text if name in wrong else declaration.format(declaration.parse(text))
            source = Source.DYNAMIC_TOPIC
            synonyms.insert(0, Synonym(name, value, source))
        yield ConfigText(declaration, value, source, tuple(synonyms))


def broker_texts(layers: Layers) -> Iterator[ConfigText]:
    """Every setting of this broker. One that differs from its default at start was set then."""
    for name, declaration in declarations(BrokerSettings).items():
        is_set = declaration.value_in(layers.in_force) is not None
        synonyms = _of_node(_STAND_INS.get(name, (name,)) if is_set else (), layers)
        first = synonyms[0] if synonyms else Synonym(name, None, Source.DEFAULT)
        yield ConfigText(declaration, first.text, first.source, tuple(synonyms))


def every_broker_texts(layers: Layers) -> Iterator[ConfigText]:
    """What was set for all brokers."""
    known = declarations(BrokerSettings)
    for synonym in _given(tuple(layers.of_all), layers.of_all, Source.DYNAMIC_DEFAULT_BROKER):
        yield ConfigText(known[synonym.name], synonym.text, synonym.source, (synonym,))


def _of_node(names: Sequence[str], layers: Layers) -> list[Synonym]:
    """What the node is set to under these names: on its own, with all others, at its start, by default.

    Empty where all that is known is the default of a coarser unit: Kafka tells nothing then.
    """
    known = declarations(BrokerSettings)
    found = [
        *_given(names, layers.of_node, Source.DYNAMIC_BROKER),
        *_given(names, layers.of_all, Source.DYNAMIC_DEFAULT_BROKER),
    ]
    for name in names:
        value, default = known[name].value_in(layers.at_start), known[name].default
        if value != default:
            found.append(Synonym(name, known[name].format(value), Source.STATIC_BROKER))
    for name in names:
        if known[name].default is not None:
            found.append(Synonym(name, known[name].format(known[name].default), Source.DEFAULT))
    is_told = found and (found[0].source is not Source.DEFAULT or found[0].name == names[0])
    return found if is_told else []


def _given(names: Sequence[str], texts: Mapping[str, str], source: Source) -> Iterator[Synonym]:
    known = declarations(BrokerSettings)
    for name in names:
        if name in texts:
            yield Synonym(name, known[name].format(known[name].parse(texts[name])), source)
