"""The clock of a broker for tests: as the system's, and ahead of it by as much as tests have moved it."""

from collections.abc import Callable


class MovableClock:
    """Milliseconds since 1970. It moves forward only, as time does."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.ahead_ms = 0

    def __call__(self) -> int:
        return self._clock() + self.ahead_ms

    def advance(self, by_ms: int) -> None:
        assert by_ms >= 0, "time does not go back"
        self.ahead_ms += by_ms
