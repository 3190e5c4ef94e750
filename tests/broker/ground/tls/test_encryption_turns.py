"""Connections under TLS share the bytes that a turn of the loop encrypts."""

import asyncio
from typing import Any

from pqbroker.broker.ground.tls.encryption_turns import ENCRYPTED_BYTES, EncryptionTurns
from tests.broker.conftest import until

CONNECTIONS = 100
PART = ENCRYPTED_BYTES // 4


class Encrypting:
    """Connections that each have some parts to encrypt; notes who encrypted how many in which turn."""

    def __init__(self, parts: int) -> None:
        self.turns = EncryptionTurns(asyncio.get_running_loop())
        self.number = 0
        self.left = dict.fromkeys(range(CONNECTIONS), parts)
        self.done: list[tuple[int, int]] = []
        """Turn and connection of each part."""

    def go_on(self, connection: int) -> None:
        if self.turns.left > 0 and self.left[connection]:
            self.done.append((self.number, connection))
            self.left[connection] -= 1
            self.turns.spend(PART)
        if self.left[connection]:
            self.turns.wait(lambda: self.go_on(connection))

    async def run(self) -> None:
        self._tick()
        self.turns.spend(self.turns.left)
        for connection in self.left:
            self.go_on(connection)
        await until(lambda: not any(self.left.values()))

    def _tick(self) -> None:
        """Count the turns, first thing in each."""
        self.number += 1
        if any(self.left.values()):
            asyncio.get_running_loop().call_soon(self._tick)


async def test_all_connections_together_encrypt_a_part_in_a_turn() -> None:
    crowd = Encrypting(parts=1)
    await crowd.run()
    by_turn = [sum(turn == number for turn, _ in crowd.done) for number in range(crowd.number + 1)]
    assert max(by_turn) == ENCRYPTED_BYTES // PART
    assert sum(by_turn) == CONNECTIONS


async def test_who_has_waited_longest_is_first() -> None:
    crowd = Encrypting(parts=3)
    await crowd.run()
    order = [connection for _, connection in crowd.done]
    assert order == [*range(CONNECTIONS)] * 3


async def test_a_turn_begins_with_all_its_bytes() -> None:
    turns = EncryptionTurns(asyncio.get_running_loop())
    turns.spend(ENCRYPTED_BYTES + 1)
    assert turns.left < 0
    called: list[Any] = []
    turns.wait(lambda: called.append(turns.left))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert called == [ENCRYPTED_BYTES]
    assert turns.left == ENCRYPTED_BYTES
