"""Keys of a KV tablet as text: UTF-8 as it is, a backslash doubled, other bytes as \\xNN. Read back it is the same."""

import re

from pqbroker.broker.web.resources.contents import read_text
from pqbroker.broker.web.routing.problems import bad_request

_ESCAPE = re.compile(rb"\\(?:\\|x([0-9a-fA-F]{2}))?")


def show_key(key: bytes) -> str:
    """A key as a line of text that can be printed anywhere."""
    text = key.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return text if text.isprintable() else "".join(map(_printable, text))


def parse_key(text: str, where: str) -> bytes:
    """The key that is shown so; Problem for an escape that is none."""

    def unescape(found: re.Match[bytes]) -> bytes:
        if found[0] == b"\\":
            raise bad_request(f"{where} has a single backslash; write \\\\ for one, or \\xNN for a byte in hex")
        return b"\\" if found[1] is None else bytes((int(found[1], 16),))

    return _ESCAPE.sub(unescape, read_text(text, where))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())
