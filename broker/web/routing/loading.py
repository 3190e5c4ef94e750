"""Modules that are loaded with the first request that needs them, so that a broker without is small and starts fast."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

M = TypeVar("M")


class LoadedLater(Generic[M]):
    """A module, several, or what else takes longer to make than others should wait: `load` makes it in a thread, once
    it is needed."""

    __slots__ = ("_load", "_loaded")

    def __init__(self, load: Callable[[], M]) -> None:
        self._load = load
        self._loaded: M | None = None

    async def get(self) -> M:
        """Return what was loaded. Requests that come meanwhile wait for it too."""
        if self._loaded is None:
            self._loaded = await asyncio.to_thread(self._load)
        return self._loaded
