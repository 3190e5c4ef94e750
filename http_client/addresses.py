"""The address of a broker's HTTP side, and what a client's transports share."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pqbroker.http_client.errors import ClientError

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 8092
TOKEN_BYTES_MAX = 16_384
"""Bytes of a token of an authorization server at most."""
UserOrToken = str | Path | tuple[str, str]
"""A token, a file with one, which each request reads, or a user and its password."""


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Host and port; IPv6 without brackets. `context` is that of TLS; None: the address is plain."""

    host: str
    port: int
    context: "ssl.SSLContext | None" = None
    authorization: str = field(default="", repr=False)
    """Header with which each request logs in; empty: none."""
    token_file: Path | None = None
    """File with the token that each request logs in with, in place of `authorization`: another may be put there."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that a request has now. ClientError where the file with the token is unreadable."""
        if self.token_file is not None:
            return {"Authorization": f"Bearer {_read_token(self.token_file)}"}
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
    and PQBROKER_PASSWORD, say. Empty for a file with a token."""
    if token_file_of(login, environment) is not None:
        return ""
    if login is None:
        user, password = environment.get("PQBROKER_USER", ""), environment.get("PQBROKER_PASSWORD", "")
        login = environment.get("PQBROKER_TOKEN", "") or ((user, password) if user and password else "")
    assert not isinstance(login, Path), "a file has been found"
    if isinstance(login, str):
        return f"Bearer {login}" if login else ""
    return "Basic " + b64encode(":".join(map(str, login)).encode()).decode()


def token_file_of(login: UserOrToken | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file that has the token of a login, which PQBROKER_TOKEN_FILE names where there is none; None for
    another login."""
    if isinstance(login, Path):
        return login
    named = environment.get("PQBROKER_TOKEN_FILE", "") if login is None else ""
    return Path(named) if named else None


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(TOKEN_BYTES_MAX + 1).strip()
    except OSError as error:
        raise ClientError("NO_TOKEN", f"cannot read the token in {path}: {error.strerror}", "Give a file.") from None
    if not 0 < len(data) <= TOKEN_BYTES_MAX or not data.isascii() or len(data.split()) != 1:
        raise ClientError("NO_TOKEN", f"{path} has no token of at most {TOKEN_BYTES_MAX} bytes", "Put one there.")
    return data.decode("ascii")


def _context(ca: str | None) -> "ssl.SSLContext":
    import ssl  # a plain client does not load it

    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or str(error)
        raise ClientError("INVALID_CA", f"ca is {ca!r}: {why}", "Give a file with certificates in PEM.") from None
