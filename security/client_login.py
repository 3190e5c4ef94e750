"""Login of a client by SASL: who it is, from a `client.properties` or from options, and the tokens that prove it. Pure,
but for the file with a token of OAUTHBEARER, which each login reads.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pqbroker.security.errors import SecurityError
from pqbroker.security.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas

MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
SASL_PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
TOKEN_BYTES_MAX: Final = 16_384
"""Bytes of a token of an authorization server at most."""
SCRAM: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Digests by mechanism."""
USUAL_MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS_MIN: Final = 4096
"""A server that asks for fewer is none of ours, or wants to guess the password."""
_ITERATIONS_MAX: Final = 1 << 20
_MODULES: Final[Mapping[str, str]] = {
    SASL_PLAIN: PLAIN_MODULE, **dict.fromkeys(SCRAM, SCRAM_MODULE), OAUTHBEARER: OAUTH_MODULE
}  # fmt: skip
_TOKEN: Final = re.compile(rb"[-_.A-Za-z0-9]+")
_FIRST: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?")


class ServerNotProved(Exception):
    """The other side is not the broker that knows the user: the text says why."""


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """A user that a client logs in as, or the token that names it."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    token_file: Path | None = None
    """File with the token of OAUTHBEARER."""

    def token(self) -> str:
        """Read the token, which may be another one each time. SecurityError."""
        assert self.token_file is not None, "a token is that of OAUTHBEARER"
        try:
            with self.token_file.open("rb") as file:
                data = file.read(TOKEN_BYTES_MAX + 1).strip()
        except OSError as error:
            raise SecurityError(f"cannot read the token in {self.token_file}: {error.strerror}") from None
        if not 0 < len(data) <= TOKEN_BYTES_MAX or _TOKEN.fullmatch(data) is None:
            raise SecurityError(f"{self.token_file} has no token of at most {TOKEN_BYTES_MAX} bytes")
        return data.decode("ascii")

    @property
    def aiokafka(self) -> dict[str, str]:
        """Return the arguments of aiokafka's clients that log in so, by a password."""
        return {
            "sasl_mechanism": self.mechanism, "sasl_plain_username": self.user, "sasl_plain_password": self.password
        }  # fmt: skip


def login_of(properties: Mapping[str, str]) -> ClientLogin:
    """Return the login that a client's properties ask for. SecurityError names what is missing or not known."""
    mechanism = properties.get(MECHANISM, "GSSAPI").strip()
    if mechanism not in _MODULES:
        raise SecurityError(f"{MECHANISM} is {mechanism}; choose from {', '.join(_MODULES)}")
    if mechanism == OAUTHBEARER:
        return _token_login(properties)
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


def _token_login(properties: Mapping[str, str]) -> ClientLogin:
    """Return the login by a token in a file, which properties name as in Kafka's clients (KIP-768). SecurityError."""
    if (text := properties.get(JAAS, "").strip()) and (module := parse_jaas(text).module) != OAUTH_MODULE:
        raise SecurityError(f"{JAAS} has the login module {module}; {OAUTHBEARER} takes {OAUTH_MODULE}")
    parts = urlsplit(properties.get(TOKEN_URL, "").strip())
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise SecurityError(
            f"{TOKEN_URL} is {parts.geturl()!r}; give the file of a token, as file:///PATH: this client fetches none "
            "from an authorization server"
        )
    return ClientLogin(OAUTHBEARER, "", "", Path(unquote(parts.path)))


def proof(login: ClientLogin, nonce: str) -> Generator[bytes, bytes, None]:
    """Yield the tokens of a client, and take those of the server between them. ServerNotProved at the end, or before;
    SecurityError for an unreadable token."""
    if login.mechanism == SASL_PLAIN:
        yield f"\0{login.user}\0{login.password}".encode()
        return
    if login.mechanism == OAUTHBEARER:
        if (yield f"n,,\x01auth=Bearer {login.token()}\x01\x01".encode()):
            yield b"\x01"  # which the server answers with its error
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
