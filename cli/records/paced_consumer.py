"""aiokafka's consumer, which asks for a partition that nobody serves only so often.

Its own asks who leads it, or asks for its records, as soon as the answer before has come: thousands of requests a
second, which keep a core of the client and one of the broker busy for as long as it waits.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer

_FETCH: Final = 1
"""Key of Kafka's API."""
UNSERVED_PAUSE_S: Final = 0.1
"""The pause that aiokafka makes before it repeats other requests that failed."""


class PacedConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """An AIOKafkaConsumer with pauses between requests for metadata, and behind each before it fetches."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._asking = PacedCall(self._client.force_metadata_update)
        self._send_now = self._client.send
        self._client.force_metadata_update = self._asking
        self._client.send = self._send_in_time

    async def _send_in_time(self, node: Any, request: Any, **more: Any) -> Any:
        if request.API_KEY == _FETCH:
            await self._asking.pause()
        return await self._send_now(node, request, **more)


class PacedCall:
    """A call that begins no sooner than UNSERVED_PAUSE_S after it ended before. Callers of the meantime share it."""

    def __init__(self, update: Callable[[], asyncio.Future[Any]]) -> None:
        self._update = update
        self._under_way: asyncio.Task[Any] | None = None
        self._asked_s = self._ended_s = float("-inf")

    def __call__(self) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        self._asked_s = loop.time()
        if self._under_way is None or self._under_way.done():
            self._under_way = loop.create_task(self._perform())
        return asyncio.shield(self._under_way)

    async def pause(self) -> None:
        """Wait until the last call is UNSERVED_PAUSE_S ago."""
        await _wait_until(self._asked_s + UNSERVED_PAUSE_S)

    async def _perform(self) -> Any:
        await _wait_until(self._ended_s + UNSERVED_PAUSE_S)
        try:
            return await self._update()
        finally:
            self._ended_s = asyncio.get_running_loop().time()


async def _wait_until(at_s: float) -> None:
    remaining_s = at_s - asyncio.get_running_loop().time()
    if remaining_s > 0:
        await asyncio.sleep(remaining_s)
