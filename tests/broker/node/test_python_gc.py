"""What lives is set aside from the collector's full passes; a cycle among it goes with a deep pass."""

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from pqbroker.broker.node import python_gc
from pqbroker.broker.node.python_gc import CycleCollector, Load, objects_of

pytestmark = pytest.mark.alone
"""Each looks at all objects of its process: beside the other tests, millions."""


class Node:
    """Something that can hold itself."""

    def __init__(self) -> None:
        self.other: Node | None = self


@pytest.fixture
def collector() -> Iterator[CycleCollector]:
    """As in a broker; this process gets its own collector back, with all collected tests set aside as before."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    begun = CycleCollector()
    begun.begin()
    yield begun
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_a_full_pass_sets_aside_what_lives(collector: CycleCollector) -> None:
    before = gc.get_freeze_count()
    living = [Node() for _ in range(python_gc.SET_ASIDE_MIN)]
    gc.collect()
    assert gc.get_freeze_count() >= before + len(living)
    assert len(gc.get_objects()) < len(living)
    grown = gc.get_freeze_count() - before
    assert collector.growth == pytest.approx(grown, abs=len(living) // 50)  # a few of those before are gone by now


@pytest.mark.usefixtures("collector")
def test_other_threads_make_tuples_meanwhile(request: pytest.FixtureRequest) -> None:
    """Python makes a tuple of a generator larger and smaller as long as nobody else knows it."""
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    ended = threading.Event()

    def make() -> int:
        made = 0
        while not ended.is_set():
            made += len(tuple(number for number in range(100)))
        return made

    with ThreadPoolExecutor(3) as threads:
        making = [threads.submit(make) for _ in range(3)]
        for _ in range(300):
            gc.collect()
        ended.set()
        assert all(thread.result() for thread in making)


@pytest.mark.usefixtures("collector")
def test_a_cycle_that_lives_through_a_full_pass_goes_with_the_next_while_little_lives() -> None:
    node = Node()
    gone = weakref.ref(node)
    gc.collect()
    del node
    gc.collect()
    assert gone() is None


def test_a_cycle_set_aside_goes_with_a_deep_pass(collector: CycleCollector) -> None:
    known = collector.known
    living = [Node() for _ in range(python_gc.SET_ASIDE_MIN)]
    gone = weakref.ref(living[0])
    gc.collect()
    living.clear()
    gc.collect()
    assert gone() is not None
    assert collector.collect_deeply() > 0
    assert gone() is None
    assert collector.growth == 0
    assert abs(collector.known - known) < len(living) + python_gc.SET_ASIDE_MIN // 10


def test_a_deep_pass_waits_for_a_quiet_second_until_a_hundred_megabytes_are_set_aside() -> None:
    busy, idle = python_gc.QUIET_BYTES, python_gc.QUIET_BYTES - 1
    collector, forced = CycleCollector(), python_gc.FORCED_GROWTH
    collector.known = collector.growth = 750_000
    assert collector.is_time(idle)
    assert not collector.is_time(busy)
    collector.growth = forced - 1
    assert not collector.is_time(busy)
    collector.growth = forced
    assert collector.is_time(busy)
    assert not collector.is_time(busy, in_work=python_gc.OBJECT_BYTES)
    collector.known = 2 * forced  # it grows as its share
    assert not collector.is_time(busy)


async def test_how_much_is_set_aside_is_not_asked_of_python(
    collector: CycleCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It walks through all of it, 0.2 s for ten thousand partitions."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("asked"))
    monkeypatch.setattr(python_gc, "LOOK_S", 0)
    monkeypatch.setattr(python_gc, "QUIET_S", 0)
    monkeypatch.setattr(collector, "forget_gone", lambda: None)
    collector.growth = collector.known + python_gc.FORCED_GROWTH
    seconds: list[float] = []
    done = asyncio.Event()

    def observe(took_s: float) -> None:
        seconds.append(took_s)
        done.set()

    task = asyncio.create_task(collector.collect_at_quiet_moments(Load(lambda: 0, lambda: 0, lambda: 0), observe))
    await done.wait()
    task.cancel()
    assert seconds


def test_what_was_set_aside_and_is_gone_again_is_no_reason_for_a_deep_pass(collector: CycleCollector) -> None:
    collector.collect_deeply()
    living = [Node() for _ in range(2 * python_gc.SET_ASIDE_MIN)]
    gc.collect()
    collector.forget_gone()
    assert collector.growth >= python_gc.SET_ASIDE_MIN
    for node in living:
        node.other = None
    living.clear()
    collector.forget_gone()
    assert collector.growth < python_gc.SET_ASIDE_MIN


def test_a_cycle_that_was_set_aside_still_counts(collector: CycleCollector) -> None:
    collector.collect_deeply()
    living = [Node() for _ in range(2 * python_gc.SET_ASIDE_MIN)]
    gc.collect()
    living.clear()
    collector.forget_gone()
    assert collector.growth >= python_gc.SET_ASIDE_MIN


async def test_no_deep_pass_comes_while_long_requests_are_in_work(
    collector: CycleCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_gc, "LOOK_S", 0)
    monkeypatch.setattr(python_gc, "QUIET_S", 0)
    monkeypatch.setattr(collector, "forget_gone", lambda: None)
    collector.known = collector.growth = python_gc.GROWTH_MIN
    work, passes = [python_gc.QUIET_BYTES], list[float]()
    load = Load(lambda: 0, lambda: work[0], lambda: 0)
    task = asyncio.create_task(collector.collect_at_quiet_moments(load, passes.append))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not passes
    work[0] = 0
    async with asyncio.timeout(10):
        while not passes:  # noqa: ASYNC110
            await asyncio.sleep(0)
    task.cancel()


def test_what_came_after_a_deep_pass_is_looked_at_as_soon_as_ever(collector: CycleCollector) -> None:
    """Python waits until a quarter more has come than lived through its last full pass: it must not count all."""
    living = [Node() for _ in range(10 * python_gc.SET_ASIDE_MIN)]
    collector.collect_deeply()
    more, seen = list[Node](), list[int]()
    gc.callbacks.insert(0, lambda phase, info: seen.append(len(gc.get_objects(2))) if info["generation"] == 2 else None)
    while not seen and len(more) < len(living):
        more.append(Node())
    assert seen
    assert len(more) < 2 * python_gc.SET_ASIDE_MIN


def test_topics_that_are_served_are_no_reason_for_a_deep_pass(collector: CycleCollector) -> None:
    served = objects_of(100, 10_000)
    known, collector.growth = collector.known, served // 2
    collector.explain(served)
    assert collector.growth == 0
    collector.growth = served - served // 2 + 7  # the others are seen later
    collector.explain(served)
    assert collector.growth == 7
    assert collector.known == known + served


def test_partitions_that_went_may_be_garbage(collector: CycleCollector) -> None:
    served = collector.growth = objects_of(0, 10_000)
    collector.explain(served)
    known = collector.known
    collector.explain(0)
    assert collector.growth == served
    assert collector.known == known - served


def test_what_is_gone_again_is_no_reason_for_a_deep_pass_beside_what_is_served_since(collector: CycleCollector) -> None:
    collector.collect_deeply()
    served = [Node() for _ in range(4 * python_gc.SET_ASIDE_MIN)]
    collector.growth = len(served)
    collector.explain(len(served))
    collector.growth = 10 * len(served)  # of requests that were in work, and are gone
    collector.forget_gone()
    assert collector.growth < len(served)


def test_rows_in_memory_are_no_reason_for_a_deep_pass(collector: CycleCollector) -> None:
    collector.collect_deeply()
    rows = [b"%d" % number for number in range(4 * python_gc.SET_ASIDE_MIN)]
    collector.growth = len(rows) // 2  # of requests that brought them, and are gone
    collector.look(Load(lambda: 0, lambda: 0, lambda: 0, lambda: len(rows)))
    assert collector.growth < len(rows) // 10
