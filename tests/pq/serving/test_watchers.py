"""Watchers of partitions that move together: called in slices of the loop, every one."""

import asyncio
from collections import deque

from pqbroker.pq.serving.watchers import CALLED_AT_ONCE_MAX, Watchers, notify_in_slices


async def test_watchers_of_many_partitions_are_called_in_several_turns() -> None:
    called: list[int] = []
    partitions: deque[Watchers] = deque()
    for number in range(5):
        partitions.append(watchers := Watchers())
        for _ in range(CALLED_AT_ONCE_MAX // 2):
            watchers.add(lambda number=number: called.append(number))  # type: ignore[misc]
    notify_in_slices(partitions)
    for turns in (1, 2, 3):
        assert len(called) == min(turns * CALLED_AT_ONCE_MAX, 5 * CALLED_AT_ONCE_MAX // 2)
        await asyncio.sleep(0)
    assert sorted(set(called)) == [0, 1, 2, 3, 4]


async def test_a_watcher_that_leaves_before_its_slice_is_not_called() -> None:
    called: list[str] = []
    first, second = Watchers(), Watchers()
    for _ in range(CALLED_AT_ONCE_MAX):
        first.add(lambda: None)
    forget = second.add(lambda: called.append("left"))
    second.add(lambda: called.append("stayed"))
    notify_in_slices(deque([first, second]))
    forget()
    await asyncio.sleep(0)
    assert called == ["stayed"]
