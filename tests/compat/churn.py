"""A log of a compacted topic that is written and cleaned while clients read it, and what has to be found in it."""

import threading
from typing import Final, Self

from pqbroker.fixture.http_calls import HttpCalls
from tests.support.cleaning import clean_topic
from tests.support.drivers.driver import RECENT_MS, Driver, Message
from tests.support.wire import CODECS

COMPACTED: Final = {
    "cleanup.policy": "compact", "pq.low.watermark.bytes": "1024", "min.cleanable.dirty.ratio": "1",
}  # fmt: skip
"""Configs of a topic that is cleaned on command alone, with bodies of a kilobyte."""
KEYS: Final = 12
PASSES: Final = 12
END: Final = b"the end"
Log = dict[int, Message]
"""Records by offset."""


def message(number: int, group: str = "later") -> Message:
    """One value of a few keys of a group, or a tombstone; the times of a key's values differ."""
    return Message(
        None if number % 17 == 5 else b"value %d " % number + b"x" * (number % 90),
        b"key %d, %s" % (number * 7 % KEYS, group.encode()),
        (("number", b"%d" % number), ("empty", b"")) if number % 3 else (),
        RECENT_MS + 10 * number,
    )


def write_all_codecs(driver: Driver, topic: str, count: int) -> Log:
    """Write batches of all codecs, each with keys of its own; return what was written by offset."""
    written: Log = {}
    for codec in CODECS:
        messages = [message(len(written) + number, codec) for number in range(count)]
        written.update(zip(driver.produce(topic, messages, codec=codec), messages, strict=True))
    return written


def last_of_each_key(log: Log) -> Log:
    last = {message.key: offset for offset, message in sorted(log.items())}
    return {offset: log[offset] for offset in sorted(last.values())}


class Churn:
    """A program that writes to a topic and has it cleaned, pass after pass, on a thread; last it writes `END`."""

    def __init__(self, calls: HttpCalls, topic: str, log: Log) -> None:
        self.log = log
        """Records that were written, by offset."""
        self.gone = 0
        self.passed = threading.Semaphore(0)
        """Released after each pass."""
        self._calls = calls
        self._topic = topic
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        for _ in range(PASSES):
            self._write(*[message(number) for number in range(len(self.log), len(self.log) + 5)])
            self.gone += clean_topic(self._calls, self._topic)["last"]["records_gone"]
            self.passed.release()
        self._write(Message(b"", END))

    def _write(self, *messages: Message) -> None:
        records = [
            {
                "key": one.key and one.key.decode(), "value": None if one.value is None else one.value.decode(),
                "timestamp": one.timestamp_ms,
                "headers": [{"key": name, "value": (value or b"").decode()} for name, value in one.headers],
            }
            for one in messages
        ]  # fmt: skip
        placed = self._calls.ask("POST", f"/v1/topics/{self._topic}/records", {"records": records})["offsets"]
        self.log.update({place["offset"]: one for place, one in zip(placed, messages, strict=True)})
