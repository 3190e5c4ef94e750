"""Configs of consumer groups and of client metrics subscriptions, kept in the scheme by name. A resource exists while
something is set for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pqbroker.broker.services.configs.operations import Change, Operation, Texts, apply_change
from pqbroker.broker.services.configs.texts import ConfigText, Source, Synonym, node_synonyms
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, Declaration, declarations, declared
from pqbroker.conf.defaults import check_size
from pqbroker.conf.dynamic import Layers
from pqbroker.conf.group_times import check_group_times
from pqbroker.conf.named_resources import ClientMetricsConfig, GroupConfig
from pqbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pqbroker.storage.tablets.scheme import Scheme

RESOURCE_NAME_BYTES_MAX = 1024
"""UTF-8 bytes of a resource's name."""


@dataclass(frozen=True, slots=True)
class NamedKind:
    """One kind of these resources."""

    name: str
    """The kind's name in the scheme."""
    settings: type
    source: Source
    nameless: str
    """Kafka's text for a request without a name."""
    noun: str
    invalid: ErrorCode
    """The code of a config that the kind does not have, and of a wrong value."""
    is_default_told: bool
    """True if the synonyms of a config include its default, under the name of the node's setting if there is one."""


GROUPS = NamedKind(
    "group", GroupConfig, Source.GROUP, "Group name must not be empty", "a consumer group", ErrorCode.INVALID_CONFIG,
    is_default_told=True,
)  # fmt: skip
SUBSCRIPTIONS = NamedKind(
    "client-metrics", ClientMetricsConfig, Source.CLIENT_METRICS,
    "Client metrics subscription name must not be empty", "a client metrics subscription", ErrorCode.INVALID_REQUEST,
    is_default_told=False,
)  # fmt: skip
_CODES = {"match": ErrorCode.INVALID_CONFIG}
"""Codes of wrong values that are not the kind's, by config, as in Kafka."""


def names(kind: NamedKind, scheme: "Scheme") -> list[str]:
    """The resources of the kind for which something is set."""
    return sorted(scheme.named_settings(kind.name))


def texts_of(kind: NamedKind, scheme: "Scheme", name: str, layers: Layers) -> Iterator[ConfigText]:
    """Yield every config of a resource: the text that was set for it, that of the node's settings, or the default.
    KafkaError INVALID_REQUEST."""
    _check_name(kind, name)
    stored = scheme.named_settings(kind.name).get(name, {})
    for declaration in declarations(kind.settings).values():
        told = _defaults(kind, declaration, layers)
        text = stored.get(declaration.name)
        if text is None:
            yield ConfigText(declaration, told[0].text, told[0].source, told if kind.is_default_told else ())
        else:
            own = Synonym(declaration.name, text, kind.source)
            yield ConfigText(declaration, text, kind.source, (own, *(told if kind.is_default_told else ())))


def _defaults(kind: NamedKind, declaration: Declaration, layers: Layers) -> tuple[Synonym, ...]:
    """Return what a config is where the resource does not say: as a setting of the node, or by its own name where no
    such setting exists."""
    of_node = f"{kind.name}.{declaration.name}"
    if of_node in declarations(BrokerSettings):
        return tuple(node_synonyms((of_node,), layers))
    return (Synonym(declaration.name, declaration.format(declaration.default), Source.DEFAULT),)


async def alter_named(
    kind: NamedKind, scheme: "Scheme", name: str, changes: list[Change], node: BrokerSettings, *, validate_only: bool
) -> None:
    """Change the configs of a resource, all or none; durable when it returns. KafkaError INVALID_REQUEST,
    INVALID_CONFIG, POLICY_VIOLATION; CommitRefused, ShardLost."""
    _check_name(kind, name)

    def change(stored: Texts) -> Mapping[str, str]:
        if not stored and len(scheme.named_settings(kind.name)) >= node.config_resources_max:
            text = f"pqbroker.config.resources.max = {node.config_resources_max} resources have configs of their own"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{text}; delete the configs of some, or raise it")
        changed = _changed(kind, stored, changes)
        check_size(changed, stored, node)
        if kind is GROUPS:
            check_group_times(changed, stored, node)
        return changed

    try:
        if validate_only:
            change(scheme.named_settings(kind.name).get(name, {}))
        else:
            await scheme.change_named_settings(kind.name, name, change)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_name(kind: NamedKind, name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, kind.nameless)
    size = len(name.encode(errors="surrogatepass"))
    if size > RESOURCE_NAME_BYTES_MAX:
        text = f"the name of {kind.noun} has {size} bytes; the most allowed is {RESOURCE_NAME_BYTES_MAX}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _changed(kind: NamedKind, stored: Texts, changes: list[Change]) -> dict[str, str]:
    texts = dict(stored)
    for change in changes:
        try:
            _change_one(kind, texts, change)
        except ConfigError as refusal:
            raise KafkaError(_CODES.get(change.name, kind.invalid), str(refusal)) from None
    return texts


def _change_one(kind: NamedKind, texts: dict[str, str], change: Change) -> None:
    declaration = declared(kind.settings, change.name)
    if declaration is None:
        if change.operation != Operation.DELETE:
            raise ConfigError(f"{change.name} is no config of {kind.noun}")
        texts.pop(change.name, None)
        return
    text = texts.get(change.name)
    held = declaration.default if text is None else declaration.parse(text)
    apply_change(texts, change, declaration, partial(_same, held))
    if change.name in texts:
        declaration.parse(texts[change.name])


def _same(held: Any) -> Any:
    return held
