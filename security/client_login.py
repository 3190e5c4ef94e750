"""Login of a client by SASL: who it is, from a `client.properties` or from options, and the tokens that prove it. Pure.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pqbroker.security.errors import SecurityError
from pqbroker.security.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas

MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
SASL_PLAIN: Final = "PLAIN"
SCRAM: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Digests by mechanism."""
USUAL_MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS_MIN: Final = 4096
"""A server that asks for fewer is none of ours, or wants to guess the password."""
_ITERATIONS_MAX: Final = 1 << 20
_MODULES: Final[Mapping[str, str]] = {SASL_PLAIN: PLAIN_MODULE, **dict.fromkeys(SCRAM, SCRAM_MODULE)}
_FIRST: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?")


class ServerNotProved(Exception):
    """The other side is not the broker that knows the user: the text says why."""


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """A user that a client logs in as."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    @property
    def aiokafka(self) -> dict[str, str]:
        """Return the arguments of aiokafka's clients that log in so."""
        return {
            "sasl_mechanism": self.mechanism, "sasl_plain_username": self.user, "sasl_plain_password": self.password
        }  # fmt: skip


def login_of(properties: Mapping[str, str]) -> ClientLogin:
    """Return the login that a client's properties ask for. SecurityError names what is missing or not known."""
    mechanism = properties.get(MECHANISM, "GSSAPI").strip()
    if mechanism not in _MODULES:
        raise SecurityError(f"{MECHANISM} is {mechanism}; choose from {', '.join(_MODULES)}")
    text = properties.get(JAAS, "").strip()
    if not text:
        raise SecurityError(f'{JAAS} is missing; give {_MODULES[mechanism]} required username="…" password="…";')
    entry = parse_jaas(text)
    if entry.module != _MODULES[mechanism]:
        raise SecurityError(f"{JAAS} has the login module {entry.module}; {mechanism} takes {_MODULES[mechanism]}")
    for name in ("username", "password"):
        if not entry.options.get(name):
            raise SecurityError(f"{JAAS} has no {name}; add {name}=\"…\" to it")
    return ClientLogin(mechanism, entry.options["username"], entry.options["password"])


def proof(login: ClientLogin, nonce: str) -> Generator[bytes, bytes, None]:
    """Yield the tokens of a client, and take those of the server between them. ServerNotProved at the end, or before.
    """
    if login.mechanism == SASL_PLAIN:
        yield f"\0{login.user}\0{login.password}".encode()
        return
    digest = SCRAM[login.mechanism]
    name = login.user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}"
    first = _text((yield f"n,,{bare}".encode()))
    found = _FIRST.fullmatch(first)
    if found is None or not found[1].startswith(nonce):
        raise ServerNotProved("its first message is no SCRAM message for this client")
    salt, iterations = base64.b64decode(found[2]), int(found[3])
    if not ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise ServerNotProved(f"it asks for {iterations} iterations; {ITERATIONS_MIN} are the least that is taken")
    salted = hashlib.pbkdf2_hmac(digest, login.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    unproved = f"c=biws,r={found[1]}"
    proved = f"{bare},{first},{unproved}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), proved, digest)
    token = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    final = yield f"{unproved},p={base64.b64encode(token).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), proved, digest)
    if not hmac.compare_digest(final, b"v=" + base64.b64encode(expected)):
        raise ServerNotProved("it does not know the user's password")


def _text(token: bytes) -> str:
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise ServerNotProved("its first message is not ASCII") from None
