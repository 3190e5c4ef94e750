"""PLAIN on a server's side (RFC 4616), pure: the one message of a client."""

from dataclasses import dataclass


class PlainRefused(ValueError):
    """A message that is no PLAIN message; the text is for the broker's log, not for the client."""


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """A name and its password, as a client sends them."""

    authorization_id: str
    name: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(name={self.name!r})"


def read_plain(message: bytes) -> PlainMessage:
    """Read `[authorization id] NUL name NUL password`. PlainRefused."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise PlainRefused("its message is not UTF-8") from None
    if len(parts) != 3:
        raise PlainRefused(f"its message has {len(parts)} parts, not 3")
    authorization_id, name, password = parts
    if not name or not password:
        raise PlainRefused("its message has an empty name or password")
    return PlainMessage(authorization_id, name, password)
