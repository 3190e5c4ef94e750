"""Scheme and hive of a node that does not have them: mirrors of the first node's, copied into row sets in this node's
memory, on which everything else stands.

What comes goes into the mirrors at once, in order; a task copies it, and has the node follow. After a snapshot the
difference is copied, else the operations of each change.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.storage.bundles.hive import Hive, HiveState
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.mirror import Mirror, MirrorRefused
from pqbroker.storage.tablets.mirror_copy import put_difference, put_operations
from pqbroker.storage.tablets.numbered_changes import NO_CHANGE, NumberedChange, SnapshotPortion
from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_state import SchemeState

log = logging.getLogger(__name__)

_AGAIN_S: Final = 0.5
SCHEME: Final = "scheme"
HIVE: Final = "hive"


class _CopyStep(NamedTuple):
    """One thing to copy; `operations` None: the difference."""

    name: str
    operations: Sequence[Sequence[Any]] | None


class MirroredRows:
    """The mirrors of one node, and their copies. `ready`: has the first node note that a cell is ready. PeerRefused."""

    def __init__(self, ready: Callable[[CellId], Awaitable[None]]) -> None:
        self._ready = ready
        self._mirrors: dict[str, Mirror[Any]] = {SCHEME: Mirror(SchemeState), HIVE: Mirror(HiveState)}
        self._whole = asyncio.Event()
        self._steps: deque[_CopyStep] = deque()
        self._wake = asyncio.Event()
        self._copies: dict[str, Scheme | Hive] = {}
        self._followed = NO_CHANGE
        self._noted = asyncio.Event()

    @property
    def numbers(self) -> dict[str, int | None]:
        """Return the number of the last change of each mirror."""
        return {name: mirror.number for name, mirror in self._mirrors.items()}

    @property
    def scheme_number(self) -> int:
        """Return the number of the last change of the scheme's mirror."""
        return self._mirrors[SCHEME].number or NO_CHANGE

    def note_followed(self, number: int) -> None:
        """Note that this node serves what the scheme has up to a change."""
        self._followed = max(self._followed, number)
        self._noted.set()
        self._noted = asyncio.Event()

    async def followed(self, number: int) -> None:
        """Return when this node serves what the scheme has up to a change."""
        while self._followed < number:
            await self._noted.wait()

    def age_ms(self, now_ms: int) -> int | None:
        """Return how long ago both mirrors were known to be all that there is; None: they never were."""
        ages = [mirror.age_ms(now_ms) for mirror in self._mirrors.values()]
        known = [age for age in ages if age is not None]
        return max(known) if len(known) == len(ages) else None

    def take(self, name: str, data: memoryview, *, is_portion: bool) -> None:
        """Take a portion of a snapshot, or a change. LinkBroken for one that does not fit: the link begins again."""
        mirror = self._mirrors.get(name)
        if mirror is None:
            raise LinkBroken(f"there is no mirror of {name!r}")
        try:
            if is_portion:
                if mirror.take(SnapshotPortion.decode(data)):
                    self._add(_CopyStep(name, None))
            else:
                change = NumberedChange.decode(data)
                if mirror.apply(change):
                    self._add(_CopyStep(name, change.operations))
        except (MirrorRefused, ValueError) as unfit:
            raise LinkBroken(f"the mirror of the {name}: {unfit}") from unfit
        if None not in self.numbers.values():
            self._whole.set()

    def confirm(self, numbers: Any, asked_ms: int) -> None:
        """Take the numbers of the last changes, as the first node has said after it was asked. LinkBroken."""
        try:
            for name, mirror in self._mirrors.items():
                mirror.confirm(numbers[name], asked_ms)
        except (LookupError, TypeError) as bad:
            raise LinkBroken(f"numbers of changes were expected: {bad!r}") from None

    async def fill(self, hive: Hive, scheme: Scheme) -> None:
        """Return when these have the rows of the mirrors, and have `follow` copy into them from then on."""
        await self._whole.wait()
        self._copies = {HIVE: hive, SCHEME: scheme}
        for name in (HIVE, SCHEME):
            await self._copy(_CopyStep(name, None))

    async def note_ready(self, cell: CellId) -> None:
        """Have the hive note that a cell of this node is ready. CommitRefused: it is tried again."""
        try:
            await self._ready(cell)
        except PeerRefused as refused:
            raise CommitRefused(str(refused)) from refused

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Copy what comes, and call `changed` after it, for as long as this runs; again where a cell refuses."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._steps:
                    await self._copy(self._steps.popleft())
                await changed()
            except (CommitRefused, ShardLost) as refused:
                log.warning("what the first node has changed is followed later: %s", refused)
                asyncio.get_running_loop().call_later(_AGAIN_S, self._wake.set)

    def _add(self, step: _CopyStep) -> None:
        self._steps.append(step)
        self._wake.set()

    async def _copy(self, step: _CopyStep) -> None:
        if step.operations is None:
            while await self._copies[step.name].copy(lambda changes: self._put_difference(changes, step.name)):
                continue
        else:
            operations = step.operations
            await self._copies[step.name].copy(lambda changes: put_operations(changes, operations))

    def _put_difference(self, changes: RowChanges, name: str) -> bool:
        # The difference has all that the mirror has by now: what waits of that would be made twice.
        self._steps = deque(one for one in self._steps if one.name != name)
        return put_difference(changes, self._mirrors[name].row_sets)
