"""The address of a broker's HTTP side, and what a client's transports share."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from pqbroker.http_client.errors import ClientError

DEFAULT_PORT = 8092


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Host and port; IPv6 without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_http_address(text: str) -> HttpAddress:
    """HOST, HOST:PORT or http://HOST:PORT; ClientError INVALID_ADDRESS."""
    try:
        parts = urlsplit(text if "//" in text else f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("", "http") or parts.path.strip("/") or parts.query:
        raise ClientError("INVALID_ADDRESS", f"the address is {text[:300]!r}", "Give HOST:PORT.")
    return HttpAddress(host, port or DEFAULT_PORT)
