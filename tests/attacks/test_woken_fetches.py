"""Parked Fetches that one change wakes together: their answers are made in slices, and count in the answers' budget."""

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.attacks.long_work import SETTINGS, TABLETS, Measured, measured, web
from tests.attacks.test_long_bodies import cost
from tests.attacks.test_long_work import DEEP_PASS_S_MAX, P99_S_MAX
from tests.broker.conftest import make_batch, produce_request
from tests.broker.wire import request_frame
from tests.support.attacked import TURN_EVER_S_MAX, Attacked, Caller, attacked

pytestmark = pytest.mark.alone

MIB = 1 << 20
WIDE_FETCHES = 100
"""Some of them park, and the others wait for memory."""
WIDE = TABLETS // 2
UNSENT_BYTES_MAX = 64 * MIB
TAKEN_BYTES_MAX = 5 * UNSENT_BYTES_MAX // 2
"""This leaves room for what is free between objects. All answers at once took 415 MiB for twice as many tablets."""
PASS_S_MAX = 0.9
"""Once the work is over: a search of all memory for garbage, with thousands of tablets in it."""
SMALL_FETCHES = 4_000
AT_ONCE = 20
"""Fetches that are sent together: to park them is not to be one turn of the loop."""
PAUSE_S = 0.01
TURN_S_MAX = 0.020
TRIES = 3
OPEN_FILES = 20_000


@pytest.fixture(autouse=True)
def open_files() -> Iterator[None]:
    """Let this process have a socket for each Fetch."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def parked(node: Attacked, topic: str, partitions: int, count: int) -> Iterator[list[Caller]]:
    """Clients, each with a Fetch of all these partitions that waits for records."""
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MIB) for index in range(partitions)]
    request = FetchRequest(
        max_wait_ms=120_000, min_bytes=1, max_bytes=MIB, topics=[FetchTopic(topic=topic, partitions=asked)]
    )
    frame = request_frame(request, 12)
    with ExitStack() as stack:
        callers = list[Caller]()
        for number in range(count):
            callers.append(stack.enter_context(node.connect()))
            callers[-1].socket.sendall(frame)
            if not number % AT_ONCE:
                time.sleep(PAUSE_S)
        until_idle(node)
        yield callers


def until_idle(node: Attacked) -> None:
    """Return when the broker has done all that it was asked."""
    worked_s, before_s = node.cpu_s(), -1.0
    while worked_s - before_s > 0.05:
        time.sleep(0.5)
        worked_s, before_s = node.cpu_s(), worked_s


def best(measure: Callable[[], Measured]) -> Measured:
    """Return what was measured first that holds, or else last."""
    found = measure()
    for _ in range(TRIES - 1):
        if found.own_turn_s < TURN_S_MAX and found.own_p99_s < P99_S_MAX:
            break
        found = measure()
    return found


def test_answers_of_thousands_of_tablets_that_an_unmount_wakes_fit_their_budget() -> None:
    found = best(woken_by_an_unmount)
    assert found.own_p99_s < P99_S_MAX, found


def woken_by_an_unmount() -> Measured:
    settings = {**SETTINGS, "pqbroker.unsent.bytes.max": str(UNSENT_BYTES_MAX)}
    with attacked(settings, turn_s_max=TURN_EVER_S_MAX, pass_s_max=PASS_S_MAX) as node:
        node.create("other", 1)
        schema = '[{"name": "a", "type": "int64"}]'
        web(node, "POST", "/v1/tables", f'{{"path": "//wide", "schema": {schema}, "tablet_count": {WIDE}}}')
        with cost(node) as taken, parked(node, "wide", WIDE, WIDE_FETCHES) as callers, measured(node) as found:
            unmounting = threading.Thread(target=web, args=(node, "POST", "/v1/tables/wide/unmount", "{}"))
            unmounting.start()
            sizes = [caller.skip() for caller in callers]
            unmounting.join()
        print(found, taken)
        assert min(sizes) > WIDE * 10, "each says of every tablet that it is unmounted"
        assert taken.bytes < TAKEN_BYTES_MAX, taken
    return found


def test_thousands_of_fetches_that_one_record_wakes_are_answered_in_slices() -> None:
    found = best(woken_by_a_record)
    assert found.own_turn_s < TURN_S_MAX, found
    assert found.own_p99_s < P99_S_MAX, found


def woken_by_a_record() -> Measured:
    with attacked(SETTINGS, turn_s_max=TURN_EVER_S_MAX, pass_s_max=DEEP_PASS_S_MAX) as node:
        node.create("other", 1)
        node.create("one", 1)
        with parked(node, "one", 1, SMALL_FETCHES) as callers:
            with measured(node) as found:
                with node.connect() as caller:
                    answer = caller.ask(produce_request("one", make_batch(b"v" * 100)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
                assert min(caller.skip() for caller in callers) > 100
            print(found)
    return found
