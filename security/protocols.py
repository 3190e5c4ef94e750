"""Security protocols of a listener and of a client's connection, by Kafka's names."""

from collections.abc import Mapping
from enum import Enum


class SecurityProtocol(Enum):
    """Protocols under the Kafka protocol: encrypted or not, with a login (SASL) or without."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """Return True if connections are under TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_login(self) -> bool:
        """Return True if clients log in by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


def parse_security_protocol(text: str) -> SecurityProtocol:
    """Return the protocol of a name in any case; ValueError lists those that exist."""
    try:
        return SecurityProtocol(text.strip().upper())
    except ValueError:
        known = ", ".join(each.value for each in SecurityProtocol)
        raise ValueError(f"{text!r} is no security protocol; choose from {known}") from None


def parse_protocol_map(text: str) -> Mapping[str, SecurityProtocol]:
    """NAME:PROTOCOL with commas, as protocols by listener's name in capitals; ValueError."""
    found: dict[str, SecurityProtocol] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = item.partition(":")
        name = name.strip().upper()
        if not colon or not name:
            raise ValueError(f"{item!r} is no NAME:PROTOCOL, as in INTERNAL:SSL")
        if name in found:
            raise ValueError(f"{name} is named twice; name each listener once")
        found[name] = parse_security_protocol(protocol)
    return found
