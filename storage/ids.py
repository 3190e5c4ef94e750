"""Ids: ints that must not stand for each other, made where they are given out or read from disk; Kafka's UUIDs."""

import secrets
from base64 import urlsafe_b64encode
from typing import NewType

TabletId = NewType("TabletId", int)
"""Id of a tablet: given out once by the scheme, or fixed for the system's own."""

CellId = NewType("CellId", int)
"""Id of a cell: given out once by the hive."""

SYSTEM_CELL = CellId(0)
"""The data directory's own cell: always open, of the default bundle, never removed."""


def new_uuid() -> bytes:
    """16 random bytes whose text form does not begin with a dash, which command lines take for an option."""
    while True:
        found = secrets.token_bytes(16)
        if found[0] >> 2 != 62:
            return found


def uuid_text(uuid: bytes) -> str:
    """The 22 characters that Kafka writes for 16 bytes."""
    return urlsafe_b64encode(uuid)[:22].decode()
