"""The modules of tables and the tree are loaded beside the loop, with the first request for them."""

import asyncio
import threading

import pytest

from pqbroker.broker.web.routing.loading import LoadedLater


async def test_it_is_loaded_in_a_thread_and_once() -> None:
    threads = list[int]()

    def load() -> str:
        threads.append(threading.get_ident())
        return "module"

    later = LoadedLater(load)
    assert threads == []
    assert (await later.get(), await later.get()) == ("module", "module")
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_requests_that_come_while_it_is_loaded_wait_for_it() -> None:
    may_end = threading.Event()

    def load() -> str:
        assert may_end.wait(60)
        return "module"

    later = LoadedLater(load)
    waiting = [asyncio.create_task(later.get()) for _ in range(2)]
    await asyncio.sleep(0)
    may_end.set()
    assert await asyncio.gather(*waiting) == ["module", "module"]


async def test_after_a_failure_it_is_loaded_again() -> None:
    tries = list[int]()

    def load() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ImportError("no memory")
        return "module"

    later = LoadedLater(load)
    with pytest.raises(ImportError):
        await later.get()
    assert await later.get() == "module"
