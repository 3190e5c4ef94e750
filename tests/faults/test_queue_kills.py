"""Three `kill -9` of a broker under a queue's producers and a consumer, or $PQBROKER_TESTS_KILLS of them: each row is
written once and consumed once, and the doctor finds nothing."""

import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.client import AutoTrim, Client, ClientError, Column, ProducerSession, Queue
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker

T = TypeVar("T")
KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "3"))
NAME = "events"
PRODUCERS = ("a", "b")
ROWS = 5
"""Rows of a push."""
_BETWEEN_S = (0.3, 0.8)
_FINAL = {"ZOMBIE_EPOCH", "INVALID_EPOCH", "INVALID_ROW_SEQUENCE_NUMBERS", "NO_SESSION", "NO_CONSUMER", "INVALID_ROW"}
"""Refusals that nothing explains here."""


class Worker(threading.Thread):
    """A client that works until `is_over`, and repeats what is not answered."""

    def __init__(self, address: str, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.is_over = is_over
        self.failure: BaseException | None = None

    def run(self) -> None:
        with Client(self._address, timeout_s=20) as client:
            try:
                self.work(client.queue(NAME))
            except BaseException as failure:
                self.failure = failure
                raise

    def work(self, queue: Queue) -> None:
        raise NotImplementedError

    @staticmethod
    def repeat(call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except ClientError as failure:
                if failure.code in _FINAL:
                    raise
                time.sleep(0.02)


class Producing(Worker):
    """Pushes rows of rising numbers; sometimes it takes its session again, and continues where that stands."""

    def __init__(self, address: str, is_over: threading.Event, name: str, tablets: int) -> None:
        super().__init__(address, is_over)
        self.named = name
        self._tablets = tablets
        self.count = 0

    def work(self, queue: Queue) -> None:
        held: ProducerSession | None = None
        while not self.is_over.is_set():
            if held is None or random.random() < 0.05:
                held = self.repeat(lambda: queue.take_session(self.named, "s", user_meta=self.count))
                assert held.sequence_number == self.count - 1, (held, self.count)
            first = self.count
            numbers = range(first, first + ROWS)
            rows = [
                {"producer": self.named, "number": number, "$tablet_index": number % self._tablets}
                for number in numbers
            ]
            pushed = self.repeat(partial(queue.push, held, rows, sequence_number=first))
            assert pushed.last_sequence_number == first + ROWS - 1
            self.count += ROWS


class Consuming(Worker):
    """Pulls a tablet and advances; what an advance that got no answer has done it asks."""

    def __init__(self, address: str, is_over: threading.Event, tablet: int) -> None:
        super().__init__(address, is_over)
        self.tablet = tablet
        self.seen: list[tuple[str, int]] = []

    def work(self, queue: Queue) -> None:
        while True:
            was_over = self.is_over.is_set()
            pulled = self.repeat(lambda: queue.pull(self.tablet, consumer="reader", max_row_count=20))
            if not pulled.rows:
                if was_over:
                    return
                time.sleep(0.01)
                continue
            begin, end = pulled.offset, pulled.next_offset
            self._advance(queue, begin, end)
            self.seen += [(row["producer"], row["number"]) for row in pulled.rows]

    def _advance(self, queue: Queue, begin: int, end: int) -> None:
        try:
            queue.advance("reader", end, tablet_index=self.tablet, old_offset=begin)
        except ClientError:
            place = self.repeat(lambda: queue.places("reader"))[self.tablet]
            if (place.offset or 0) == begin:
                self._advance(queue, begin, end)
            else:
                assert place.offset == end, (place, begin, end)


def make_queue(running: Broker, tablets: int) -> None:
    with Client(running.http) as client:
        table = client.table(NAME)
        table.create([Column("producer", "utf8"), Column("number", "int64")], tablet_count=tablets)
        client.queue(NAME).register("reader", vital=True)
        client.queue(NAME).set_auto_trim(AutoTrim(enable=True))
    if tablets > 1:
        ask = HttpCalls(lambda: running.http).ask
        cell = ask("POST", "/v1/cells", {"bundle": "default"})["id"]
        ask("POST", f"/v1/tables/{NAME}/mount", {"first_tablet_index": 1, "cell_id": str(cell)})


def kill_and_restart(running: Broker, kills: int) -> None:
    for _ in range(kills):
        time.sleep(random.uniform(*_BETWEEN_S))
        running.kill()
        running.start()
    time.sleep(_BETWEEN_S[1])


@pytest.mark.spec("E.13", "J.6")
@pytest.mark.timeout(120 + 20 * KILLS)
@pytest.mark.parametrize("tablets", [1, 2])
def test_each_row_of_a_queue_is_written_and_consumed_once_through_kills(tmp_path: Path, tablets: int) -> None:
    """The second tablet lives in a cell of its own."""
    directory = tmp_path / "data"
    with broker(directory, {"pqbroker.queue.trim.interval.ms": "100"}) as running:
        make_queue(running, tablets)
        is_over, is_read = threading.Event(), threading.Event()
        producers = [Producing(running.http, is_over, name, tablets) for name in PRODUCERS]
        consumers = [Consuming(running.http, is_read, tablet) for tablet in range(tablets)]
        workers: list[Worker] = [*producers, *consumers]
        for worker in workers:
            worker.start()
        kill_and_restart(running, KILLS)
        is_over.set()
        for worker in producers:
            worker.join(60)
        is_read.set()
        for reader in consumers:
            reader.join(60)
        assert [one.failure for one in workers if one.failure is not None] == []
    for producer in producers:
        assert producer.count > ROWS * KILLS
        for consumer in consumers:
            numbers = [number for name, number in consumer.seen if name == producer.named]
            assert numbers == list(range(consumer.tablet, producer.count, tablets))
    findings = examine_directory(directory, {}).found
    assert [one for one in findings if (one.check, one.weight) != ("segment", Weight.HARMLESS)] == []
