"""A look at partitions that give a consumer no record: aiokafka waits in silence for one that nobody serves.

served    --missing in two looks that follow each other--> unserved: told, with the cure
unserved  --a record of it, or a look finds it served-----> served: told
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from pqbroker.cli.kafka.cluster import Cluster, TopicPartition
from pqbroker.cli.kafka.watch import LOOK_TIMEOUT_S
from pqbroker.cli.notices import tell
from pqbroker.cli.refusals import CommandError, words
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import INT64_MAX

SILENCE_S = 2.0
"""Time without a record after which a partition is asked about, and pause between two looks."""
_NAMED_MAX: Final = 20


class Unserved:
    """Looks every SILENCE_S, in a thread, at the partitions that gave no record since the look before."""

    def __init__(self, brokers: str, offsets: Mapping[TopicPartition, int]) -> None:
        """`offsets`: by partition the offset to ask for until a record of it came: its end, so that none is sent."""
        self._brokers = brokers
        self._offsets = dict(offsets)
        self._cluster: Cluster | None = None
        self._thread = ThreadPoolExecutor(1, "unserved")
        self._looking: asyncio.Future[dict[TopicPartition, ErrorCode] | None] | None = None
        self._due_s = asyncio.get_running_loop().time() + SILENCE_S
        self._moved: set[TopicPartition] = set()
        self._suspected: set[TopicPartition] = set()
        """Missing in the last look: an election may be under way."""
        self._told: set[TopicPartition] = set()

    def note(self, assigned: Iterable[TopicPartition], moved: Mapping[TopicPartition, int]) -> None:
        """Begin a look when its time has come, and tell what the last one found.

        `moved`: by partition the offset behind the records that came from it.
        """
        self._offsets.update(moved)
        self._moved.update(moved)
        if self._looking is not None and self._looking.done():
            found = self._looking.result()
            self._looking = None
            if found is not None:
                self._compare(found)
        loop = asyncio.get_running_loop()
        if self._looking is None and loop.time() >= self._due_s:
            self._due_s = loop.time() + SILENCE_S
            silent = {each: self._offsets.get(each, 0) for each in assigned if each not in self._moved}
            self._moved.clear()
            self._looking = loop.run_in_executor(self._thread, self._look, silent)

    def close(self) -> None:
        """End the thread; its connections are closed behind the last look."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _compare(self, found: Mapping[TopicPartition, ErrorCode]) -> None:
        missing = {each: code for each, code in found.items() if each in self._suspected | self._told}
        _tell_missing({each: code for each, code in missing.items() if each not in self._told})
        _tell_served(self._told - found.keys())
        self._suspected, self._told = set(found), set(missing)

    def _look(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode] | None:
        """Return the partitions that nobody serves; None where no broker answers, which another watch reports."""
        with suppress(CommandError):
            if self._cluster is None:
                self._cluster = Cluster(self._brokers, LOOK_TIMEOUT_S)
            return self._cluster.unserved(offsets)
        self._close()
        return None

    def _close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def await_served(cluster: Cluster, partitions: Collection[TopicPartition]) -> None:
    """Return when all partitions are served, for who begins to follow them. CommandError where no broker answers."""
    told: set[TopicPartition] = set()
    suspected: set[TopicPartition] = set()
    while missing := cluster.unserved(dict.fromkeys(partitions, INT64_MAX)):  # an offset at which no record is sent
        _tell_missing({each: code for each, code in missing.items() if each in suspected - told})
        _tell_served(told - missing.keys())
        suspected, told = set(missing), (suspected | told) & missing.keys()
        time.sleep(SILENCE_S)
    _tell_served(told)


def _tell_missing(missing: Mapping[TopicPartition, ErrorCode]) -> None:
    by_code: dict[ErrorCode, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(missing):
        by_code[missing[partition]].append(partition)
    for code, partitions in by_code.items():
        tell(f"waiting for {_named(partitions)}: {words(code)}; Ctrl-C ends it")


def _tell_served(partitions: Collection[TopicPartition]) -> None:
    if partitions:
        tell(f"served again: {_named(sorted(partitions))}")


def _named(partitions: list[TopicPartition]) -> str:
    more = f" and {len(partitions) - _NAMED_MAX} more" if len(partitions) > _NAMED_MAX else ""
    return ", ".join(f"{topic}-{index}" for topic, index in partitions[:_NAMED_MAX]) + more
