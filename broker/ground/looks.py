"""Requests that take memory or time to decode: few at once, and those who wait are served address by address."""

from types import TracebackType

from pqbroker.broker.ground.holder_queue import HolderQueue


class Looks:
    """Requests that decode, at most `count` at once."""

    __slots__ = ("count", "queue")

    def __init__(self, count: int) -> None:
        self.count = count
        self.queue = HolderQueue(has_reserve=False)

    def of(self, holder: str) -> "Look":
        """Return what a request of a holder (`holder_of`) enters with `async with`, as often as it wants."""
        return Look(self, holder)


class Look:
    """One request's part in `Looks`."""

    __slots__ = ("_holder", "_looks")

    def __init__(self, looks: Looks, holder: str) -> None:
        self._looks = looks
        self._holder = holder

    async def __aenter__(self) -> None:
        await self._looks.queue.begin(self._holder, self._looks.count)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._looks.queue.end(self._holder)
