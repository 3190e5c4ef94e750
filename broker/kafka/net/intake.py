"""Intake of a connection: the request that is still arriving, and whether the connection is read.

Its states are the table `INTAKE` of connection_states.py. Nothing here is called for a request that arrives whole,
but `may_read`.
"""

import asyncio
from collections.abc import Callable, Sized

from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.net.connection_states import INTAKE, IntakeEvent, Intaking
from pqbroker.broker.kafka.net.reading_pause import ReadingPause
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.protocol.frames import HELD_STEP_BYTES, FrameReader


class Intake:
    """One connection's intake. It is what `Receiving` sees of the connection."""

    __slots__ = (
        "_budget", "_in_flight", "_make_room", "_pause", "_receiving", "_settings", "_transport", "_unserved", "bytes",
        "held_bytes", "reader", "share", "state",
    )  # fmt: skip

    def __init__(
        self,
        peer: Peer,
        transport: asyncio.Transport,
        receiving: Receiving,
        requests: tuple[Sized, Sized],
        make_room: Callable[[], None],
    ) -> None:
        """`requests`: those of the connection that wait, and those in work. `make_room` closes it for others' sake."""
        self._transport = transport
        self._receiving = receiving
        self._budget = receiving.budget
        self.share = receiving.budget.share(peer.holder)
        self.share.takers[self] = None
        self._settings = peer.node.settings
        self._unserved, self._in_flight = requests
        self._make_room = make_room
        self._pause = ReadingPause(peer.node.loop)
        self.reader = FrameReader(receiving.frame_bytes_max, receiving.buffer, self._grant)
        self.held_bytes = 0
        """Bytes that the reader holds, as the node counts them."""
        self.bytes = 0
        """Bytes of requests that have arrived whole and are not answered; the connection counts them."""
        self.state = Intaking.READING

    def admit(self, receiving: Receiving) -> None:
        """Count all that the connection has with other connections from now on, and read frames as they do."""
        held = self.held_bytes
        self._receiving.release(self)
        left = self.share
        left.leave(self)
        left.give_back(self.bytes)
        self._receiving = receiving
        self._budget = receiving.budget
        self.share = receiving.budget.share(left.holder)
        self.share.takers[self] = None
        self.share.take(self.bytes)
        self.reader.allow(receiving.frame_bytes_max)
        claimed = self.reader.claimed_bytes
        if held:
            receiving.hold(self, held, is_new=True)
        if claimed and receiving.claim(self, claimed):
            self.begin_claimed()
        self.consider()

    def count_held(self, *, is_new: bool) -> None:
        """The reader holds other bytes than before; a request began just now where `is_new`.

        The connection may close by this.
        """
        held = self.reader.held_bytes
        if not held:  # the request is whole, and counts as such from here on
            self.share.take(-self._receiving.finish(self))
            self.held_bytes = 0
        elif held != self.held_bytes or is_new:
            self.held_bytes = held
            self._receiving.hold(self, held, is_new=is_new)
            self.limit()

    def may_read(self) -> bool:
        """Return True if nothing speaks against reading."""
        settings = self._settings
        return (
            not self._pause.is_on
            and not self.reader.claimed_bytes
            and len(self._unserved) + len(self._in_flight) < settings.connection_requests_max
            and self.bytes < settings.connection_bytes_max
            and (self._budget.taken <= self._budget.open or self.share.may_read)
        )

    def limit(self) -> None:
        """Stop reading if too much is in work."""
        if self.state is Intaking.READING and not self.may_read():
            self.state = INTAKE[self.state, IntakeEvent.PAUSE]
            self._transport.pause_reading()
            if not self.share.may_read:
                self.share.await_room()

    def consider(self) -> None:
        """Read again, if nothing speaks against it any more."""
        if self.state is not Intaking.PAUSED:
            return
        if self.may_read():
            self.state = INTAKE[self.state, IntakeEvent.RESUME]
            if self.held_bytes:
                self._receiving.touch(self)
            self._transport.resume_reading()
        elif not self.share.may_read:
            self.share.await_room()

    def pause(self, pause_ms: int) -> None:
        """Read nothing for `pause_ms`, or for longer if another pause lasts longer."""
        self._pause.lengthen(pause_ms, self.consider)
        self.limit()

    def stop(self) -> None:
        """Read nothing more."""
        if self.state is Intaking.READING:
            self._transport.pause_reading()
        self.state = INTAKE[self.state, IntakeEvent.END]

    def end(self) -> None:
        """The connection closes: nothing of an unfinished request is needed any more."""
        self.state = INTAKE[self.state, IntakeEvent.END]
        self._pause.cancel()
        self.share.leave(self)
        self._receiving.release(self)
        self.reader.drop()
        self.held_bytes = 0
        self._make_room = _nobody  # a connection is freed at once, not by the collector

    def give_up(self) -> None:
        self._make_room()

    def begin_claimed(self) -> None:
        self.reader.begin_claimed()
        self.held_bytes = self.reader.held_bytes
        self.consider()

    def _grant(self, size: int) -> bool:
        """Claim the memory of a large request. Return True if it may have it now; else `begin_claimed` is called."""
        is_granted = self._receiving.claim(self, size)
        if is_granted:
            self.held_bytes = min(size, HELD_STEP_BYTES)
        return is_granted


def _nobody() -> None:
    """Stands for the connection when it is closed."""
