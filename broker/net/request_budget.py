"""Request bytes in work over all connections of a node, and who waits for them to become fewer."""

from collections.abc import Callable


class ByteBudget:
    """Counts bytes taken; above `bytes_max` connections stop reading and are called back below it.

    Who takes bytes adds them to `taken`; bytes that become others' are changed there too. Only `give_back` calls back.
    """

    __slots__ = ("_waiting", "bytes_max", "taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_exceeded(self) -> bool:
        return self.taken > self.bytes_max

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiting)

    def give_back(self, size: int) -> None:
        self.taken -= size
        assert self.taken >= 0
        if self._waiting and self.taken <= self.bytes_max:
            waiting, self._waiting = self._waiting, {}
            for resume in waiting:
                resume()

    def call_when_below(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when bytes are given back and the sum is within the limit again."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        self._waiting.pop(resume, None)
