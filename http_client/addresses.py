"""The address of a broker's HTTP side, and what a client's transports share."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pqbroker.http_client.errors import ClientError

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 8092
UserOrToken = str | tuple[str, str]
"""A token, or a user and its password."""


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Host and port; IPv6 without brackets. `context` is that of TLS; None: the address is plain."""

    host: str
    port: int
    context: "ssl.SSLContext | None" = None
    authorization: str = field(default="", repr=False)
    """Header with which each request logs in; empty: none."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that every request has."""
        return {"Authorization": self.authorization} if self.authorization else {}

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_http_address(
    text: str, ca: str | None = None, context: "ssl.SSLContext | None" = None
) -> HttpAddress:
    """HOST, HOST:PORT, http://HOST:PORT or https://HOST:PORT; ClientError INVALID_ADDRESS, INVALID_CA.

    `ca`: file with certificates that the broker's must lead to; `context` stands for all of TLS.
    """
    try:
        parts = urlsplit(text if "//" in text else f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("", "http", "https") or parts.path.strip("/") or parts.query:
        raise ClientError("INVALID_ADDRESS", f"the address is {text[:300]!r}", "Give HOST:PORT, or https:// before it.")
    if parts.scheme != "https":
        if ca is not None or context is not None:
            raise ClientError("INVALID_ADDRESS", f"the address {text[:300]!r} is plain", "Give https:// before it.")
        return HttpAddress(host, port or DEFAULT_PORT)
    return HttpAddress(host, port or DEFAULT_PORT, context or _context(ca))


def authorization_of(login: UserOrToken | None, environment: Mapping[str, str]) -> str:
    """Return the header of a login: a token, or a user and its password. None: what PQBROKER_TOKEN, or PQBROKER_USER
    and PQBROKER_PASSWORD, say."""
    if login is None:
        user, password = environment.get("PQBROKER_USER", ""), environment.get("PQBROKER_PASSWORD", "")
        login = environment.get("PQBROKER_TOKEN", "") or ((user, password) if user and password else "")
    if isinstance(login, str):
        return f"Bearer {login}" if login else ""
    return "Basic " + b64encode(":".join(login).encode()).decode()


def _context(ca: str | None) -> "ssl.SSLContext":
    import ssl  # a plain client does not load it

    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or str(error)
        raise ClientError("INVALID_CA", f"ca is {ca!r}: {why}", "Give a file with certificates in PEM.") from None
