"""Outcomes of what was asked for.

The news of a commit passes several floors before a client has it. On the usual road one call carries it: each floor is
called with the error or None (`Told`) and calls the next. An `Outcome` is for those who await it, or look at it later;
with an asyncio.Future each floor would cost a turn of the loop and a copy of the context.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

from pqbroker.storage.kept_errors import raised_again

T = TypeVar("T")

Told = Callable[[BaseException | None], object]
"""Called once with what became of a commit: None is durable, else CommitRefused or ShardLost."""


class Outcome(Generic[T]):
    """A result or an error, once. Can be awaited. Nobody has to look at an error."""

    __slots__ = ("_error", "_is_done", "_listeners", "_result")

    def __init__(self) -> None:
        self._is_done = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Outcome[T]], object]] | None = None

    @classmethod
    def failed(cls, error: BaseException) -> "Outcome[T]":
        """Return an outcome that has failed already."""
        outcome = cls()
        outcome.set_exception(error)
        return outcome

    @classmethod
    def of(cls, begin: Callable[[Told], None]) -> "Outcome[None]":
        """Return the outcome that `begin` will tell the callback that it is given."""
        outcome: Outcome[None] = Outcome()
        begin(outcome.settle)
        return outcome

    def done(self) -> bool:
        return self._is_done

    def exception(self) -> BaseException | None:
        """Return the error, or None if there is a result. Only once it is done."""
        assert self._is_done
        return self._error

    def result(self) -> T:
        """The result, or the error raised. Once it is done."""
        assert self._is_done
        if self._error is not None:
            raise raised_again(self._error)
        return cast(T, self._result)

    def set_result(self, result: T) -> None:
        assert not self._is_done
        self._result = result
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        assert not self._is_done
        self._error = error
        self._settle()

    def settle(self: "Outcome[None]", error: BaseException | None) -> None:
        """Settle the outcome; called as a `Told`."""
        assert not self._is_done
        self._error = error
        self._settle()

    def decide(self, decided: "T | BaseException") -> None:
        """The result, or the error that is given instead of one."""
        if isinstance(decided, BaseException):
            self.set_exception(decided)
        else:
            self.set_result(decided)

    def add_done_callback(self, listener: "Callable[[Outcome[T]], object]") -> None:
        """Call `listener` with this when it is settled, in that call; in the loop's next turn if it is already."""
        if self._is_done:
            asyncio.get_running_loop().call_soon(listener, self)
        elif self._listeners is None:
            self._listeners = [listener]
        else:
            self._listeners.append(listener)

    async def wait(self) -> None:
        """Return when it is done, with a result or an error."""
        if not self._is_done:
            await self._told()

    def __await__(self) -> Generator[Any, None, T]:
        if not self._is_done:
            yield from self._told()
        return self.result()

    def _told(self) -> "asyncio.Future[None]":
        """Return a future that is done when this is."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add_done_callback(lambda _: None if told.done() else told.set_result(None))
        return told

    def _settle(self) -> None:
        self._is_done = True
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            for listener in listeners:
                listener(self)
