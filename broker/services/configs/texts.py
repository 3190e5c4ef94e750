"""Settings as Kafka's APIs show them: text values, where each came from, what it was before."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, Declaration, Effect, Kind, current_names, declarations, declared
from pqbroker.conf.defaults import NODE_SETTINGS, topic_defaults
from pqbroker.conf.dynamic import Layers
from pqbroker.conf.topic import TopicConfig


class Source(IntEnum):
    """Kafka's ConfigSource ids."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """A place a value comes from: the name and text there."""

    name: str
    text: str | None
    source: Source


_STAND_INS = {names[0]: names for names in NODE_SETTINGS.values()}
"""Settings of a broker that Kafka looks at for each: itself, and those in coarser units."""


@dataclass(frozen=True, slots=True)
class ConfigText:
    """One setting in text, None where nothing is set, and for a password; `synonyms`: where it could come from, the one
    in force first."""

    declaration: Declaration
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]

    @property
    def documentation(self) -> str:
        doc, effect = self.declaration.meaning, self.declaration.effect
        if effect is Effect.NONE:
            return f"{doc} Accepted and stored; it has no effect in this broker."
        return doc if effect is Effect.FULL else f"{doc} Only the default is accepted."


def _once(make: Callable[[Layers], Iterator[ConfigText]]) -> Callable[[Layers], tuple[ConfigText, ...]]:
    """Keep the texts of the layers asked for last: they take milliseconds, and layers change only as a whole."""
    kept: list[tuple[Layers, tuple[ConfigText, ...]]] = []

    def texts(layers: Layers) -> tuple[ConfigText, ...]:
        if not kept or kept[0][0] is not layers:
            kept[:] = [(layers, tuple(make(layers)))]
        return kept[0][1]

    return texts


def topic_texts(stored: Mapping[str, str], layers: Layers) -> Iterator[ConfigText]:
    """Yield every topic config: the text set for the topic (`stored`), that of the node's settings, the default."""
    stored = current_names(TopicConfig, stored)
    for text in _open_topic_texts(layers):
        declaration = text.declaration
        if declaration.name in stored:
            value = _open(declaration, _shown(declaration, stored[declaration.name]))
            own = Synonym(declaration.name, value, Source.DYNAMIC_TOPIC)
            yield ConfigText(declaration, value, Source.DYNAMIC_TOPIC, (own, *text.synonyms))
        else:
            yield text


@_once
def _open_topic_texts(layers: Layers) -> Iterator[ConfigText]:
    """Yield every config of a topic for which nothing was set."""
    of_node = topic_defaults(layers.in_force)
    for name, declaration in declarations(TopicConfig).items():
        synonyms = node_synonyms(NODE_SETTINGS.get(name, ()), layers)
        source = synonyms[0].source if synonyms else Source.DEFAULT
        value = of_node.get(name, declaration.format(declaration.default))
        yield ConfigText(declaration, value, source, tuple(synonyms))


@_once
def broker_texts(layers: Layers) -> Iterator[ConfigText]:
    """Every setting of this broker, those of single listeners that are given, and what another version took. One that
    differs from its default at start was set then."""
    known = declarations(BrokerSettings)
    for name, declaration in known.items():
        is_set = declaration.value_in(layers.in_force) is not None
        synonyms = node_synonyms(_STAND_INS.get(name, (name,)) if is_set else (), layers)
        first = synonyms[0] if synonyms else Synonym(name, None, Source.DEFAULT)
        yield ConfigText(declaration, first.text, first.source, tuple(synonyms))
    at_start = dict(layers.at_start.listener_settings)
    for name in sorted((layers.of_all.keys() | layers.of_node.keys() | at_start.keys()) - known.keys()):
        synonyms, declaration = _set_since((name,), layers), _declared(name)
        if name in at_start:
            text = _open(declaration, declaration.format(at_start[name]))
            synonyms.append(Synonym(name, text, Source.STATIC_BROKER))
        yield ConfigText(declaration, synonyms[0].text, synonyms[0].source, tuple(synonyms))


def every_broker_texts(layers: Layers) -> Iterator[ConfigText]:
    """Yield what was set for all brokers."""
    for synonym in _given(tuple(layers.of_all), layers.of_all, Source.DYNAMIC_DEFAULT_BROKER):
        yield ConfigText(_declared(synonym.name), synonym.text, synonym.source, (synonym,))


def node_synonyms(names: Sequence[str], layers: Layers) -> list[Synonym]:
    """Return what the node is set to under these names: on its own, with all others, at its start, by default.

    Empty where all that is known is the default of a coarser unit: Kafka reports nothing then.
    """
    known = declarations(BrokerSettings)
    found = _set_since(names, layers)
    for name in names:
        value, default = known[name].value_in(layers.at_start), known[name].default
        if value != default:
            text = _open(known[name], known[name].format(value))
            found.append(Synonym(name, text, Source.STATIC_BROKER))
    for name in names:
        if known[name].default is not None:
            found.append(Synonym(name, known[name].format(known[name].default), Source.DEFAULT))
    is_told = found and (found[0].source is not Source.DEFAULT or found[0].name == names[0])
    return found if is_told else []


def _set_since(names: Sequence[str], layers: Layers) -> list[Synonym]:
    """Return what was set under these names while nodes ran."""
    return [
        *_given(names, layers.of_node, Source.DYNAMIC_BROKER),
        *_given(names, layers.of_all, Source.DYNAMIC_DEFAULT_BROKER),
    ]


def _given(names: Sequence[str], texts: Mapping[str, str], source: Source) -> Iterator[Synonym]:
    for name in names:
        if name in texts:
            declaration = _declared(name)
            yield Synonym(name, _open(declaration, _shown(declaration, texts[name])), source)


def _shown(declaration: Declaration, text: str) -> str:
    """Return a text that was set, in its usual form; an invalid one as it is, so that its owner can correct it."""
    try:
        return declaration.format(declaration.parse(text))
    except ConfigError:
        return text


def _open(declaration: Declaration, text: str) -> str | None:
    """Return the text of a setting; None if it is a password, which nobody is shown."""
    return None if declaration.kind is Kind.PASSWORD else text


def _declared(name: str) -> Declaration:
    return declared(BrokerSettings, name) or _foreign(name)


def _foreign(name: str) -> Declaration:
    """A setting that another version took."""
    return Declaration(name, "", Kind.STRING, None, "Not known to this version.", effect=Effect.NONE)
