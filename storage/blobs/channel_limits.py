"""Limits of tablets' channels: operations and bytes a second, over which Puts wait, and space (spec K.2).

What users store in a channel counts wherever it lies: in a pool, or, because it is small, in the index.

    commit --nothing waits, within the rates--> submitted
           --else--> waits, behind those of its tablet --in time, or the shard is lost--> submitted
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from pqbroker.conf.storage import ChannelProfile
from pqbroker.storage.blobs.blob_id import blob_size
from pqbroker.storage.engine import Batch, ShardLost
from pqbroker.storage.outcome import Told

BURST_SECONDS = 1.0
"""Seconds for which a channel's unused rate is kept: it may use that much at once."""

Channel = tuple[int, int]
"""Tablet id and channel."""
Submit = Callable[[Batch, Told], None]
_Waiting = deque[tuple[Batch, Told, Submit]]


class ChannelLimits:
    """The limited channels of one open cell. What it does not know of has no limit."""

    def __init__(self, lost: "asyncio.Future[ShardLost]") -> None:
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._profiles: dict[Channel, ChannelProfile] = {}
        self._paid_until: dict[Channel, float] = {}
        """The loop's time up to which what was stored uses up the rates."""
        self._used: Counter[Channel] = Counter()
        """Bytes of blobs."""
        self._used_inline: Counter[Channel] = Counter()
        """Bytes of values that are rows."""
        self._waiting: dict[int, _Waiting] = {}

    def limit(self, tablet: int, channel: int, profile: ChannelProfile, used: int) -> None:
        """Have the channel, which holds `used` bytes, heed its limits."""
        self._profiles[tablet, channel] = profile
        self._used[tablet, channel] = used

    def forget(self, tablet: int) -> None:
        """The tablet was dropped."""
        for channel in [channel for channel in self._profiles if channel[0] == tablet]:
            del self._profiles[channel], self._used[channel], self._used_inline[channel]
            self._paid_until.pop(channel, None)

    def is_full(self, tablet: int, channel: int) -> bool:
        profile = self._profiles.get((tablet, channel))
        key = (tablet, channel)
        return profile is not None and 0 < profile.space <= self._used[key] + self._used_inline[key]

    def limits_space(self, tablet: int, channel: int) -> bool:
        profile = self._profiles.get((tablet, channel))
        return profile is not None and profile.space > 0

    def measured(self, tablet: int, channel: int, used: int) -> None:
        """Note what the channel holds after a collection of garbage."""
        self._used[tablet, channel] = used

    def holds_inline(self, tablet: int, channel: int, used: int) -> None:
        """The channel holds `used` bytes in rows, as its tablet starts."""
        self._used_inline[tablet, channel] = used

    def commit(self, tablet: int, batch: Batch, told: Told, submit: Submit) -> None:
        """Submit the batch now, or when the rates of its channels allow; those of one tablet in order."""
        if tablet not in self._waiting and self._delay(batch) <= 0:
            self._submit(batch, told, submit)
            return
        waiting = self._waiting.get(tablet)
        if waiting is None:
            waiting = self._waiting[tablet] = deque()
            self._wake_later(tablet, batch)
        waiting.append((batch, told, submit))

    def _delay(self, batch: Batch) -> float:
        """Seconds until the batch may be submitted; none once the shard is lost, so that it fails."""
        if self._lost.done():
            return 0.0
        channels = {_channel(blob) for blob, _, _, _ in batch.blobs}
        channels.update((use.tablet, use.channel) for use in batch.inline if use.puts)
        paid = max((self._paid_until.get(channel, 0.0) for channel in channels), default=0.0)
        return paid - BURST_SECONDS - self._loop.time()

    def _submit(self, batch: Batch, told: Told, submit: Submit) -> None:
        for blob, _, size, _ in batch.blobs:
            self._charge(_channel(blob), 1, size)
        for use in batch.inline:
            self._charge((use.tablet, use.channel), use.puts, use.put_bytes)
        submit(batch, partial(self._account, batch, told))

    def _charge(self, channel: Channel, puts: int, size: int) -> None:
        """Have the channel's rates pay for what is stored now."""
        profile = self._profiles.get(channel)
        if profile is None or not (profile.operations or profile.bytes):
            return
        operations = puts / profile.operations if profile.operations else 0.0
        seconds = max(operations, size / profile.bytes if profile.bytes else 0.0)
        self._paid_until[channel] = max(self._paid_until.get(channel, 0.0), self._loop.time()) + seconds

    def _account(self, batch: Batch, told: Told, error: BaseException | None) -> None:
        if error is None:
            self._count(batch)
        told(error)

    def _count(self, batch: Batch) -> None:
        for blob, _, size, _ in batch.blobs:
            self._add(_channel(blob), size)
        for blob in batch.dead:
            self._add(_channel(blob), -blob_size(blob))
        for use in batch.inline:
            self._used_inline[use.tablet, use.channel] += use.kept_bytes

    def _add(self, channel: Channel, size: int) -> None:
        if channel in self._profiles:
            self._used[channel] += size

    def _wake_later(self, tablet: int, batch: Batch) -> None:
        """Try again when its rates allow; within a burst's time in any case, as the shard may be lost by then."""
        delay = min(max(self._delay(batch), 0.0), BURST_SECONDS)
        self._loop.call_later(delay, self._wake, tablet)

    def _wake(self, tablet: int) -> None:
        waiting = self._waiting[tablet]
        while waiting and self._delay(waiting[0][0]) <= 0:
            self._submit(*waiting.popleft())
        if waiting:
            self._wake_later(tablet, waiting[0][0])
        else:
            del self._waiting[tablet]


def _channel(blob: bytes) -> Channel:
    return int.from_bytes(blob[:8], "big"), blob[8]
