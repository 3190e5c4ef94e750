"""What lives is set aside from the collector's full passes; a cycle among it goes with a deep pass."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from pqbroker.broker import collector


class Node:
    """Something that can hold itself."""

    def __init__(self) -> None:
        self.other: Node | None = self


@pytest.fixture
def set_aside() -> Iterator[None]:
    """As in a broker; this process gets its own collector back."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    collector.set_aside_what_lives()
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


@pytest.mark.usefixtures("set_aside")
def test_a_full_pass_sets_aside_what_lives() -> None:
    before = gc.get_freeze_count()
    living = [Node() for _ in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() >= before + len(living)
    assert len(gc.get_objects()) < len(living)


@pytest.mark.usefixtures("set_aside")
def test_a_cycle_set_aside_goes_with_a_deep_pass() -> None:
    node = Node()
    gone = weakref.ref(node)
    gc.collect()
    del node
    gc.collect()
    assert gone() is not None
    collector.collect_deeply()
    assert gone() is None
