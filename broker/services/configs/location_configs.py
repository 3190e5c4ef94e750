"""Places where a node listens and keeps its records, as configs: its start decides, and the configs describe it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pqbroker.broker.ground.listeners import DEFAULT_NAME, advertised_addresses
from pqbroker.broker.services.configs.callers import LocatedNode
from pqbroker.broker.services.configs.operations import Change, Operation
from pqbroker.broker.services.configs.texts import ConfigText, Source, Synonym
from pqbroker.protocol.errors import ErrorCode, KafkaError

LISTENERS, ADVERTISED, DIRECTORIES = "listeners", "advertised.listeners", "log.dirs"
PROTOCOLS = "listener.security.protocol.map"
OF_ONE_LISTENER = "listener.name."


def locations(node: LocatedNode) -> dict[str, str]:
    """Return the node's actual places, by the names of the settings that have them in Kafka."""
    advertised = advertised_addresses(node.listeners, node.settings.advertised_listeners)
    return {
        LISTENERS: ",".join(f"{one.name}://{one.address}" for one in node.listeners),
        ADVERTISED: ",".join(f"{one.name}://{advertised.get(one.name, one.address)}" for one in node.listeners),
        DIRECTORIES: ",".join(pool.directory for pool in node.pools()),
    }


def with_locations(node: LocatedNode, texts: Iterable[ConfigText]) -> Iterator[ConfigText]:
    """The settings of the node, those of its places with what they are. They were set when it started."""
    found = locations(node)
    for text in texts:
        name = text.declaration.name
        place = found.get(name)
        if place is None:
            yield text
            continue
        at_start = Synonym(name, place, Source.STATIC_BROKER)
        defaults = tuple(each for each in text.synonyms if each.source is Source.DEFAULT and each.text)
        yield replace(text, value=place, source=Source.STATIC_BROKER, synonyms=(at_start, *defaults))


def check_locations(node: LocatedNode, changes: Iterable[Change]) -> list[Change]:
    """The changes without those that say what is so; KafkaError INVALID_REQUEST for one that moves a listener or
    promises that it is protected."""
    return [change for change in changes if not _says_what_is_so(node, change)]


def _says_what_is_so(node: LocatedNode, change: Change) -> bool:
    name, operation, value = change
    if operation == Operation.DELETE:
        return False
    if name.startswith(OF_ONE_LISTENER):
        raise _refused(name, "this broker has no settings of one listener, and all its listeners are plain")
    if name == LISTENERS:
        listening = locations(node)[LISTENERS]
        if operation != Operation.SUBTRACT and _items(value) == _items(listening):
            return True
        raise _refused(name, f"this node listens on {listening}; start it with --kafka to listen elsewhere")
    if name == PROTOCOLS:
        protocols = dict(item.partition(":")[::2] for item in _items(value))
        own = [one.name for one in node.listeners]
        if any(protocols.get(each, DEFAULT_NAME) != DEFAULT_NAME for each in own):
            raise _refused(name, f"the listeners of this broker are plain: {', '.join(own)}")
    return False


def _items(value: str | None) -> list[str]:
    return sorted(item.strip() for item in (value or "").split(",") if item.strip())


def _refused(name: str, cause: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed: {cause}")
