"""Places where a node listens and keeps its records, as configs: its start decides, and the configs describe it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pqbroker.broker.ground.listeners import EVERY_HOST, advertised_addresses
from pqbroker.broker.services.configs.callers import LocatedNode
from pqbroker.broker.services.configs.operations import Change, Operation
from pqbroker.broker.services.configs.texts import ConfigText, Source, Synonym
from pqbroker.conf.addresses import Address
from pqbroker.protocol.errors import ErrorCode, KafkaError

LISTENERS, ADVERTISED, DIRECTORIES = "listeners", "advertised.listeners", "log.dirs"
HTTP_PLACE = "pqbroker.advertised.http"
PROTOCOLS = "listener.security.protocol.map"


def locations(node: LocatedNode) -> dict[str, str]:
    """Return the node's actual places, by the names of the settings that have them in Kafka."""
    advertised = advertised_addresses(node.listeners, node.settings.advertised_listeners)
    return {
        LISTENERS: ",".join(f"{one.name}://{one.address}" for one in node.listeners),
        ADVERTISED: advertised_listeners(node),
        DIRECTORIES: ",".join(pool.directory for pool in node.pools()),
        HTTP_PLACE: _advertised_http(node, advertised),
    }


def advertised_listeners(node: LocatedNode) -> str:
    """Return where Kafka clients reach the node, in the form of the setting; it needs no open cell."""
    advertised = advertised_addresses(node.listeners, node.settings.advertised_listeners)
    return ",".join(f"{one.name}://{advertised.get(one.name, one.address)}" for one in node.listeners)


def _advertised_http(node: LocatedNode, advertised: Mapping[str, Address]) -> str:
    """Return where clients reach the HTTP address; empty where the node has none."""
    listener = node.http()
    if listener is None or node.settings.advertised_http:
        return node.settings.advertised_http if listener is not None else ""
    address = listener.address
    if address.host in EVERY_HOST:
        first = node.listeners[0]
        host = advertised.get(first.name, first.address).host
        address = Address("127.0.0.1" if host in EVERY_HOST else host, address.port)
    return str(replace(listener, address=address))


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
    if name == LISTENERS:
        listening = locations(node)[LISTENERS]
        if operation != Operation.SUBTRACT and _items(value) == _items(listening):
            return True
        raise _refused(name, f"this node listens on {listening}; start it with --kafka to listen elsewhere")
    if name == PROTOCOLS:
        protocols = dict(item.partition(":")[::2] for item in _items(value))
        for one in node.listeners:
            if protocols.get(one.name, one.protocol.value) != one.protocol.value:
                raise _refused(name, f"the listener {one.name} is {one.protocol.value} until the node is restarted")
    return False


def _items(value: str | None) -> list[str]:
    return sorted(item.strip() for item in (value or "").split(",") if item.strip())


def _refused(name: str, cause: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed: {cause}")
