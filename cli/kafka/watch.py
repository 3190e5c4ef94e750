"""A watch on whether the broker still answers while aiokafka works, which waits for it in silence and without end.

answering --no progress, and a look fails--> gone: told
gone      --progress, or a look succeeds---> answering: told
gone      --for longer than is waited------> the work is cancelled: BrokerGone
any       --a look ends in a defect--------> the work is cancelled: the defect's error
"""

import asyncio
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from pqbroker.cli.kafka.link import Link, NoBroker, parse_brokers
from pqbroker.cli.notices import tell
from pqbroker.cli.refusals import CommandError
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

LOOK_EVERY_S = 1.0
LOOK_TIMEOUT_S = 1.0
GONE_TIMEOUT_S = 60.0
"""Seconds that a command with an end waits for a broker that has gone."""

T = TypeVar("T")


class BrokerGone(CommandError):
    """No broker has answered for longer than the command waits."""


class Watch:
    """Looks at a broker, or the first of several that answers, once a second while the work makes no progress.

    `patience_s`: how long it may be gone; None: for ever.
    """

    def __init__(self, broker: str, patience_s: float | None) -> None:
        self._addresses = parse_brokers(broker)
        self._patience_s = patience_s
        self._link: Link | None = None
        self._thread = ThreadPoolExecutor(1, "watch")
        """Looks, and closes what the last look left."""
        self._has_moved = False
        self.moves = 0
        """Notes of progress so far."""
        self._gone_since_s: float | None = None
        self._given_up: BaseException | None = None

    def moved(self) -> None:
        """Note progress of the work: the broker answers."""
        self._has_moved = True
        self.moves += 1

    @property
    def is_gone(self) -> bool:
        """Return True while no broker answers."""
        return self._gone_since_s is not None

    async def over(self, work: Awaitable[T]) -> T:
        """Return what the work returns. Cancel it when the broker is gone too long; raises BrokerGone then."""
        task = asyncio.current_task()
        assert task is not None
        watching = asyncio.get_running_loop().create_task(self._watch(task))
        watching.add_done_callback(partial(self._end, task))
        try:
            return await work
        except asyncio.CancelledError:
            if self._given_up is None:
                raise
            task.uncancel()
            raise self._given_up from None
        finally:
            watching.cancel()
            self._thread.submit(self._close)
            self._thread.shutdown(wait=False)

    async def _watch(self, worker: "asyncio.Task[Any]") -> None:
        while self._given_up is None:
            await self._look_again()
        worker.cancel()

    def _end(self, worker: "asyncio.Task[Any]", watch: "asyncio.Task[None]") -> None:
        if not watch.cancelled() and (defect := watch.exception()) is not None:
            self._given_up = defect
            worker.cancel()

    async def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(LOOK_EVERY_S)
        why = None if self._has_moved else await loop.run_in_executor(self._thread, self._look)
        self._has_moved = False
        if why is None:
            self._found()
        else:
            self._missed(why)

    def _found(self) -> None:
        if self._gone_since_s is not None:
            self._gone_since_s = None
            tell(f"the broker at {self._shown} answers again")

    def _missed(self, why: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._gone_since_s is None:
            self._gone_since_s = now_s
            most = "" if self._patience_s is None else f", {self._patience_s:g} s at most"
            tell(f"no broker answers at {self._shown} ({why}); waiting until it is back{most}; Ctrl-C ends it")
        elif self._patience_s is not None and now_s - self._gone_since_s >= self._patience_s:
            self._given_up = BrokerGone(f"no broker has answered at {self._shown} for {self._patience_s:g} s ({why})")

    def _look(self) -> str | None:
        """Return why nobody answers. An earlier connection may have been closed as an idle one is."""
        if self._link is not None:
            try:
                self._link.ask(ApiVersionsRequest(), ApiVersionsResponse, version_max=0)
                return None
            except CommandError:
                self._close()
        why = ""
        for address in self._addresses:
            try:
                self._link = Link(address, LOOK_TIMEOUT_S, LOOK_TIMEOUT_S)
            except NoBroker as error:
                why = error.why
            except CommandError as error:
                why = str(error)
            else:
                return None
        return why

    @property
    def _shown(self) -> str:
        return ", ".join(map(str, self._addresses))

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
