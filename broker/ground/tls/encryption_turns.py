"""Encryption over all connections of a node: a turn of the loop has a limit of bytes, and who comes later waits.

a connection has something to encrypt      what happens
there are bytes left in this turn          it encrypts as many
there are none, or it has more             it is called in a later turn, behind those that wait already
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

ENCRYPTED_BYTES: Final = 4 << 20
"""Encrypted in one turn by all connections: some milliseconds."""


class EncryptionTurns:
    """The encryption of a node's connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_planned = False
        self.left = ENCRYPTED_BYTES
        """Bytes that may still be encrypted in this turn."""

    def spend(self, size: int) -> None:
        """Note that `size` bytes were encrypted in this turn."""
        self.left -= size
        self._plan()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Have `go_on` called in a later turn, once there are bytes left."""
        self._waiting.append(go_on)
        self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn with those that wait; those that wait again in it come behind the others."""
        self._is_planned = False
        self.left = ENCRYPTED_BYTES
        waiting, self._waiting = self._waiting, deque()
        while waiting and self.left > 0:
            waiting.popleft()()
        if waiting:
            waiting.extend(self._waiting)
            self._waiting = waiting
            self._plan()
