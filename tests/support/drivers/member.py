"""A member of a consumer group that lives beside the test: a thread of its own polls its consumer all the time.

Clients move on in a group only while they are polled, and a rebalance needs all its members at once.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from tests.support.drivers.driver import REQUEST_TIMEOUT_S, GroupConsumer

_POLL_S = 0.1
_DEADLINE_S = 30.0
_changed = threading.Condition()


def await_members(condition: Callable[[], object], what: str) -> None:
    """Wait until members' threads have made the condition true; AssertionError at the deadline."""
    with _changed:
        assert _changed.wait_for(condition, _DEADLINE_S), f"after {_DEADLINE_S:g} s still not: {what}"


def tell_of_change() -> None:
    """Whoever awaits members looks again."""
    with _changed:
        _changed.notify_all()


class Member:
    """A context manager; leaves the group at the end, or earlier when it is told to."""

    def __init__(self, start: Callable[[], GroupConsumer]) -> None:
        """`start` makes the consumer, in the thread that uses it."""
        self.received: list[tuple[int, int]] = []
        """Partition and offset of each record, as they came."""
        self.assignments: list[frozenset[int]] = []
        """What it owned after each rebalance."""
        self._start = start
        self._orders: queue.SimpleQueue[tuple[Callable[[GroupConsumer], None], Future[None]]] = queue.SimpleQueue()
        self._left = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self.leave()

    @property
    def owned(self) -> frozenset[int]:
        """The partitions it was given last."""
        if self._failure is not None:
            raise self._failure
        return self.assignments[-1] if self.assignments else frozenset()

    def commit(self) -> None:
        """Commit all that it received, and await the answer."""
        self._order(lambda consumer: consumer.commit())

    def leave(self) -> None:
        """Close the consumer: a dynamic member leaves its group by that, a static one stays until its session ends."""
        self._order(self._close)
        self._thread.join(REQUEST_TIMEOUT_S)

    def _order(self, act: Callable[[GroupConsumer], None]) -> None:
        done: Future[None] = Future()
        self._orders.put((act, done))
        done.result(2 * REQUEST_TIMEOUT_S)

    def _close(self, consumer: GroupConsumer) -> None:
        consumer.close()
        self._left = True

    def _live(self) -> None:
        try:
            consumer = self._start()
            while not self._left:
                self.received += consumer.poll(_POLL_S)
                self.assignments = list(consumer.assignments)
                tell_of_change()
                self._obey(consumer)
        except BaseException as failure:
            self._failure = failure
            tell_of_change()
            raise

    def _obey(self, consumer: GroupConsumer) -> None:
        while not self._left and not self._orders.empty():
            act, done = self._orders.get()
            try:
                act(consumer)
            except BaseException as failure:
                done.set_exception(failure)
                raise
            done.set_result(None)
