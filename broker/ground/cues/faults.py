"""Faults of requests, as tests ask for them."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pqbroker.protocol.errors import ErrorCode


class NamedApi(Protocol):
    """An API of Kafka that the broker serves."""

    @property
    def key(self) -> int: ...
    @property
    def name(self) -> str: ...


class Act(StrEnum):
    """The effect of a fault on a request."""

    ERROR = "error"
    """Answer with an error; nothing of what it meets is performed."""
    DELAY = "delay"
    """Perform it, and answer later."""
    PAUSE = "pause"
    """Perform it, and answer when the fault has ended."""
    DISCONNECT = "disconnect"
    """Close the connection."""


@dataclass(frozen=True, slots=True)
class Cue:
    """An order of a test: an act, and the requests that it is for."""

    act: Act
    api: NamedApi | None
    """None: every API."""
    error: ErrorCode = ErrorCode.NONE
    topic: str | None = None
    partition: int | None = None
    times: int | None = None
    """None: until it is ended."""
    hold_ms: int = 0
    performed: bool = False
    """A disconnect comes after the work is done, instead of the answer."""


class Fault:
    """A cue that was given."""

    __slots__ = ("cue", "holding", "left", "number", "over", "timer")

    def __init__(self, number: int, cue: Cue) -> None:
        self.number = number
        self.cue = cue
        self.left = cue.times
        self.holding = 0
        """Answers that it holds back."""
        self.over = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None

    def meets(self, key: int) -> bool:
        """Return True if the fault may yet meet a request of an API."""
        return self.left != 0 and (self.cue.api is None or self.cue.api.key == key)
