"""Places where a node listens and keeps its records: an option wins over the environment, that over the settings.

A `server.properties` of Apache Kafka says it with `listeners` and `log.dirs`; only what was set counts, not Kafka's
defaults, which would open a port to every network.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pqbroker.broker.ground.listeners import (
    HTTP_NAME,
    AddressError,
    Listener,
    parse_address,
    parse_listeners,
    with_protocols,
)
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, declarations
from pqbroker.security.protocols import SecurityProtocol, parse_protocol_map

KAFKA, HTTP, DATA = "127.0.0.1:9092", "127.0.0.1:8092", "./data"
"""Defaults, where neither options nor variables nor settings say anything."""
LISTEN_KAFKA, LISTEN_HTTP, DATA_DIR = "PQBROKER_LISTEN_KAFKA", "PQBROKER_LISTEN_HTTP", "PQBROKER_DATA_DIR"
_PROTOCOL_MAP = "listener.security.protocol.map"
_SCHEMES = {"http": SecurityProtocol.PLAINTEXT, "https": SecurityProtocol.SSL}
_PROTECTIONS = ("SASL", "SSL", "TLS")
"""Parts of a listener's name that promise a protection."""
_KAFKAS_FILE = "meta.properties"
"""File in every log directory of Apache Kafka."""


@dataclass(frozen=True, slots=True)
class Locations:
    """Locations of one node. `data`: a directory, or `:memory:`; `http`: None for a node that serves none."""

    kafka: tuple[Listener, ...]
    http: Listener | None
    data: str


@dataclass(frozen=True, slots=True)
class Options:
    """Options as they were typed; None where nothing was."""

    kafka: str | None
    http: str | None
    data: str | None


def choose_locations(options: Options, environment: Mapping[str, str], texts: Mapping[str, str]) -> Locations:
    """`texts`: the settings that were given. AddressError, ConfigError name the place of what is wrong."""
    kafka = _kafka(options, environment, texts)
    if _PROTOCOL_MAP in texts:
        kafka = with_protocols(kafka, parse_protocol_map(texts[_PROTOCOL_MAP]))
    else:
        _check_names(kafka)
    return Locations(kafka, _http(options, environment, texts), _data(options, environment, texts))


def _kafka(options: Options, environment: Mapping[str, str], texts: Mapping[str, str]) -> tuple[Listener, ...]:
    if options.kafka is not None:
        return parse_listeners(options.kafka)
    if environment.get(LISTEN_KAFKA):
        return _named(LISTEN_KAFKA, environment[LISTEN_KAFKA])
    if "listeners" not in texts:
        return parse_listeners(KAFKA)
    known = declarations(BrokerSettings)
    left_out = known["controller.listener.names"].parse(texts.get("controller.listener.names", ""))
    items = [one for one in known["listeners"].parse(texts["listeners"]) if one.partition("://")[0] not in left_out]
    return _named("listeners", ",".join(_with_host(one) for one in items))


def _check_names(listeners: tuple[Listener, ...]) -> None:
    """AddressError for a name such as SASLSSL, which would be plain although it promises a protection."""
    for listener in listeners:
        name = listener.name.upper()
        if name not in SecurityProtocol.__members__ and any(word in name for word in _PROTECTIONS):
            raise AddressError(
                f"the listener {listener.name} would be plain and without a login, since its name is no security "
                f"protocol; write one of {', '.join(SecurityProtocol.__members__)}, or name its protocol in "
                f"{_PROTOCOL_MAP}, such as {listener.name}:SASL_SSL"
            )


def _with_host(item: str) -> str:
    """Kafka's NAME://:PORT means every address of the machine."""
    name, separator, address = item.rpartition("://")
    return f"{name}{separator}{'0.0.0.0' if address.startswith(':') else ''}{address}"


def _named(place: str, text: str) -> tuple[Listener, ...]:
    try:
        return parse_listeners(text)
    except AddressError as error:
        raise AddressError(f"{place}: {error}") from None


def _http(options: Options, environment: Mapping[str, str], texts: Mapping[str, str]) -> Listener:
    protocol = SecurityProtocol(texts.get("pqbroker.http.security.protocol") or SecurityProtocol.PLAINTEXT)
    if options.http is not None:
        return _http_listener(options.http, protocol)
    try:
        return _http_listener(environment.get(LISTEN_HTTP) or HTTP, protocol)
    except AddressError as error:
        raise AddressError(f"{LISTEN_HTTP}: {error}") from None


def _http_listener(text: str, protocol: SecurityProtocol) -> Listener:
    """`text`: [http://|https://]HOST:PORT, of which the scheme wins over `protocol`."""
    scheme, separator, address = text.rpartition("://")
    if separator and scheme.lower() not in _SCHEMES:
        raise AddressError(f"{text!r} begins with {scheme}://; give HOST:PORT, http:// or https:// before it")
    chosen = _SCHEMES[scheme.lower()] if separator else protocol
    return Listener(HTTP_NAME, parse_address(address.removesuffix("/")), protocol=chosen)


def _data(options: Options, environment: Mapping[str, str], texts: Mapping[str, str]) -> str:
    if options.data is not None:
        return options.data
    if environment.get(DATA_DIR):
        return environment[DATA_DIR]
    if "log.dirs" not in texts:
        return DATA
    directories = declarations(BrokerSettings)["log.dirs"].parse(texts["log.dirs"])
    if len(directories) != 1:
        raise ConfigError(
            f"log.dirs is {texts['log.dirs']!r}; give one directory, and others as pqbroker.pools (docs/disks.md)"
        )
    directory: str = directories[0]
    if Path(directory, _KAFKAS_FILE).exists():
        raise ConfigError(f"log.dirs is {directory}, which holds logs of Apache Kafka; give another, or --data DIR")
    return directory
