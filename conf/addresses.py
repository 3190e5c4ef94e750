"""Addresses as a user writes them: HOST:PORT, ADDRESS:COUNT. Nothing is listened on or connected to here."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, as a user writes them; port 0 means any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressError(ValueError):
    """Text that is no HOST:PORT; the text names cause and cure."""


def parse_address(text: str) -> Address:
    """HOST:PORT, an IPv6 host in brackets; AddressError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(f"{text!r} is no HOST:PORT; write an IPv6 host in brackets, as in [::1]:9092")
    if not host.isprintable() or " " in host:
        raise AddressError(f"{text!r} is no HOST:PORT: no host has such a character in its name")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise AddressError(f"{text!r} is no HOST:PORT, as in 127.0.0.1:9092; port 0 picks a free one")
    return Address(host, int(port))


@lru_cache(maxsize=8)
def address_counts(text: str) -> Mapping[str, int]:
    """ADDRESS:COUNT with commas, as a count for each address; AddressError. A name is refused: it is not looked up."""
    counts: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, count = item.rpartition(":")
        try:
            address = ip_address(host.strip("[] "))
        except ValueError:
            raise AddressError(f"{item!r} is no ADDRESS:COUNT, as in 192.0.2.7:100; give an IP address") from None
        if not count.isascii() or not count.isdecimal():
            raise AddressError(f"{item!r} is no ADDRESS:COUNT, as in 192.0.2.7:100; give a count from 0")
        counts[str(address)] = int(count)
    return counts
