"""A cycle of one partition that waits, with its writer, for a request of several tablets: the `JointCommit` of a part.

    entered   plan: its request is ready            holding    `turn(None)`; the partition's writer waits
    entered   plan: there is nothing to write       idle       `turn(None)`; the writer continues
    entered   plan: refused; held, lost, left       gone       `turn(error)`, unless it left
    holding   held, lost, left                      gone       the plan is taken back; `refusal` says why
    holding   commands                              sent       too late to leave
    sent      told                                  gone       applied, or taken back
"""

import asyncio
from collections.abc import Callable, Sequence

from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.transactions.participants import OnTurn
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome, Told


class JointCycle:
    """A place in a partition's queue. `plan` gives the cycle, or the refusal of what it is for."""

    __slots__ = (
        "_is_idle", "_is_left", "_is_sent", "_job", "_kv", "_plan", "_refusal", "_server", "_told", "_turn", "cycle",
        "now",
    )  # fmt: skip

    def __init__(
        self, server: PartitionServer, plan: Callable[[int], Cycle | KafkaError], now: Callable[[], int]
    ) -> None:
        self._server = server
        self._plan = plan
        self.now = now
        self.cycle: Cycle | None = None
        """The cycle while it holds."""
        self._turn: OnTurn | None = None
        self._job: Outcome[None] = Outcome()
        self._kv: KeyValueTablet | None = None
        self._told: Told | None = None
        """Called with the outcome of the request; None before the cycle holds, and when it holds no more."""
        self._refusal: BaseException | None = None
        self._is_left = False
        self._is_sent = False
        self._is_idle = False

    def enter(self, turn: OnTurn, *, size: int = 0, decided_bytes: int = 0) -> None:
        """Take a place in the queue; `size` and `decided_bytes` as in `Job`."""
        self._turn = turn
        self._job = self._server.writer.perform(self._make, size, decided_bytes)
        self._job.add_done_callback(self._ended)

    def refusal(self) -> BaseException | None:
        """Return why the cycle does not hold; None: it does, or has nothing to write."""
        if self._refusal is not None:
            return self._refusal
        if self._is_idle:
            return None
        return not_leader() if self._told is None or not self._server.is_loaded else None

    def commands(self) -> Sequence[Command]:
        """Return what the request writes; from now on it is too late to leave."""
        self._is_sent = True
        if self._is_idle:
            return ()
        assert self.cycle is not None, "the cycle holds"
        return self.cycle.as_commands()

    def told(self, error: BaseException | None, prepared: Callable[[], None] | None = None) -> Outcome[None]:
        """The request has ended; done when the cycle is applied, or taken back. `prepared`: called before the writer
        begins another one, where it is durable."""
        told, self._told, self.cycle = self._told, None, None
        if self._is_idle:
            return self._job
        assert told is not None, "the cycle holds"
        if error is None and prepared is not None:
            prepared()
        if isinstance(error, ShardLost) and self._kv is not None and self._kv.lost is None:
            error = CommitRefused(str(error))  # another tablet's instance is over, this one continues
        told(error)
        return self._job

    def leave(self) -> None:
        """Give the place up: before the commands were taken. Called twice it does nothing."""
        self._is_left = True
        self._turn = None
        if not self._is_sent:
            self._take_back("the commit was given up")

    def commit(self, kv: KeyValueTablet, cycle: Cycle, told: Told) -> None:
        """Hold, as the `JointCommit` of the cycle: it is ready, and the parts of its large batches are durable."""
        self._kv, self.cycle, self._told = kv, cycle, told
        if self._is_left or self._refusal is not None:
            self._take_back(str(self._refusal))
        else:
            self._tell_turn(None)

    def give_up(self, why: KafkaError) -> None:
        """Give up as `JointCommit` does; too late when the request is on its way."""
        if self._is_sent or self._refusal is not None:
            return
        self._refusal = why
        self._take_back(str(why))
        self._tell_turn(why)

    def _make(self) -> Cycle:
        now_ms = self.now()
        if self._is_left:
            return self._server.state.no_change(now_ms)
        planned = self._plan(now_ms)
        if isinstance(planned, KafkaError):
            self._refusal = planned
            self._tell_turn(planned)
            return self._server.state.no_change(now_ms)
        if planned.is_empty:
            self._is_idle = True
            self._tell_turn(None)
        planned.joint = self
        return planned

    def _ended(self, job: Outcome[None]) -> None:
        """The place in the queue is over."""
        error = job.exception()
        if error is not None:
            self._refusal = self._refusal or error
            self._tell_turn(error)

    def _tell_turn(self, error: BaseException | None) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn(error)

    def _take_back(self, why: str) -> None:
        """Have the writer take the plan back, if it waits for this."""
        told, self._told, self.cycle = self._told, None, None
        if told is not None:
            asyncio.get_running_loop().call_soon(told, CommitRefused(why))
