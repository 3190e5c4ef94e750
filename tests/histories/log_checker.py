"""Finds what a history of logs breaks of Kafka's promises, in the manner of Jepsen's workload for it. Pure.

Readers are readers of committed records. A transaction is over for all of them in the end, not at one moment: it is
torn when a part of it stays unseen.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from tests.histories.history import Ending
from tests.histories.log_history import Found, LogHistory, Place, Produced, Reading, Seen, Sent


class LogAnomaly(StrEnum):
    """Promises that a history of logs may break."""

    UNSENT = "a read of what nobody sent"
    ABORTED = "a read of what was aborted"
    EARLY = "a read of what nobody had asked to commit yet"
    LOST = "a committed record is lost"
    TORN = "a torn transaction: a part of it is seen"
    DOUBLED = "a record stands at two offsets"
    CHANGED = "an offset holds two records"
    REORDERED = "records stand in another order than they were sent in"
    POLL_BACKWARDS = "a reader goes back"
    SKIPPED = "a reader passes over a committed record"
    BACKWARDS = "an offset goes back"
    INPUT_TWICE = "a record is an input of two committed transactions"


@dataclass(frozen=True, slots=True)
class FoundLogAnomaly:
    """A broken promise."""

    anomaly: LogAnomaly
    text: str

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.text}"


def check_log(history: LogHistory) -> list[FoundLogAnomaly]:
    """Return everything that a history breaks; nothing: it keeps all."""
    known = _Known(history)
    checks = (
        _sources(known), _places(known), _outcomes(known), _orders(known), _ways(known), _growth(history.seen),
        _inputs(known),
    )  # fmt: skip
    return [one for check in checks for one in check]


class _Owner(NamedTuple):
    """The transaction that a value belongs to, by its number, and the record."""

    number: int
    sent: Sent


class _Column(NamedTuple):
    """Records of a partition that were read, in the order of their offsets."""

    offsets: Sequence[int]
    values: Sequence[int]


class _Known:
    """A history, and what can be looked up in it."""

    def __init__(self, history: LogHistory) -> None:
        self.history = history
        self.owners: dict[int, _Owner] = {
            sent.value: _Owner(number, sent)
            for number, one in enumerate(history.produced)
            for sent in one.sends
        }
        self.places: dict[int, set[Place]] = defaultdict(set)
        """All places at which a value was acknowledged or read."""
        self.read: set[int] = set()
        self.final: set[int] = set()
        """Values that readers got who read when all was over."""
        for reading in history.readings:
            for found in reading.found:
                self.places[found.value].add(Place(reading.partition, found.offset))
                self.read.add(found.value)
                if reading.is_last:
                    self.final.add(found.value)
        for one in history.produced:
            for sent in one.sends:
                if sent.offset is not None:
                    self.places[sent.value].add(Place(sent.partition, sent.offset))
        self.last_of_keys = self._last_of_keys()
        self.columns = self._columns()

    def produced(self, value: int) -> Produced:
        return self.history.produced[self.owners[value].number]

    def is_covered(self, partition: Hashable, key: Hashable, offset: int | None) -> bool:
        """Return True if a record of a compacted partition may be gone: a later one of its key was read."""
        if key is None:
            return False
        last = self.last_of_keys.get((partition, key))
        return last is not None and (offset is None or last > offset)

    def offset_of(self, sent: Sent) -> int | None:
        """Return where a record stands, as far as anybody knows."""
        return min((place.offset for place in self.places.get(sent.value, ())), default=None)

    def _last_of_keys(self) -> Mapping[tuple[Hashable, Hashable], int]:
        last: dict[tuple[Hashable, Hashable], int] = {}
        for reading in self.history.readings:
            for found in reading.found:
                owner = self.owners.get(found.value)
                if owner is not None and owner.sent.key is not None:
                    place = (reading.partition, owner.sent.key)
                    last[place] = max(last.get(place, -1), found.offset)
        return last

    def _columns(self) -> Mapping[Hashable, _Column]:
        by_partition: dict[Hashable, dict[int, int]] = defaultdict(dict)
        for reading in self.history.readings:
            for found in reading.found:
                by_partition[reading.partition].setdefault(found.offset, found.value)
        columns = {}
        for partition, values in by_partition.items():
            offsets = sorted(values)
            columns[partition] = _Column(offsets, [values[offset] for offset in offsets])
        return columns


def _sources(known: _Known) -> Iterator[FoundLogAnomaly]:
    """Find reads of what was not to be seen."""
    for reading in known.history.readings:
        for found in reading.found:
            where = f"value {found.value} at {reading.partition} {found.offset}"
            owner = known.owners.get(found.value)
            if owner is None or owner.sent.partition != reading.partition:
                yield FoundLogAnomaly(LogAnomaly.UNSENT, where)
                continue
            produced = known.history.produced[owner.number]
            if produced.ending is Ending.FAIL:
                yield FoundLogAnomaly(LogAnomaly.ABORTED, f"{where}, of transaction {owner.number}")
            elif produced.asked is None or found.completed < produced.asked:
                yield FoundLogAnomaly(LogAnomaly.EARLY, f"{where}, of transaction {owner.number}")


def _places(known: _Known) -> Iterator[FoundLogAnomaly]:
    """Find records at two places, and places with two records."""
    at: dict[Place, int] = {}
    for value, places in known.places.items():
        if len(places) > 1:
            yield FoundLogAnomaly(LogAnomaly.DOUBLED, f"value {value} at {sorted(places, key=str)}")
        for place in places:
            before = at.setdefault(place, value)
            if before != value:
                yield FoundLogAnomaly(LogAnomaly.CHANGED, f"{place.partition} {place.offset} has {before} and {value}")


def _outcomes(known: _Known) -> Iterator[FoundLogAnomaly]:
    """Find transactions that are lost, or of which a part is, for those who read when all was over."""
    if not any(reading.is_last for reading in known.history.readings):
        return
    for number, produced in enumerate(known.history.produced):
        if produced.ending is Ending.FAIL:
            continue
        missing = [sent for sent in produced.sends if _is_missing(known, sent)]
        is_seen = any(sent.value in known.read for sent in produced.sends)
        if not missing:
            continue
        text = f"transaction {number}: {[(sent.partition, sent.value, sent.offset) for sent in missing]}"
        if produced.ending is Ending.OK and not is_seen:
            yield FoundLogAnomaly(LogAnomaly.LOST, text)
        elif is_seen:
            yield FoundLogAnomaly(LogAnomaly.TORN if missing != list(produced.sends) else LogAnomaly.LOST, text)


def _is_missing(known: _Known, sent: Sent) -> bool:
    if sent.value in known.final:
        return False
    return not known.is_covered(sent.partition, sent.key, known.offset_of(sent))


def _orders(known: _Known) -> Iterator[FoundLogAnomaly]:
    """Find records of a producer that stand in another order than it sent them in."""
    last: dict[tuple[Hashable, Hashable], tuple[int, int]] = {}
    for produced in known.history.produced:
        for sent in produced.sends:
            offset = known.offset_of(sent)
            if offset is None:
                continue
            place = (produced.producer, sent.partition)
            before = last.get(place)
            if before is not None and before[0] >= offset:
                earlier = f"{before[1]}, sent before, at {before[0]}"
                text = f"{sent.partition} has value {sent.value} at {offset}, and {earlier}"
                yield FoundLogAnomaly(LogAnomaly.REORDERED, text)
            last[place] = (offset, sent.value)


def _ways(known: _Known) -> Iterator[FoundLogAnomaly]:
    """Find readers that go back, or pass over what somebody has read."""
    for reading in known.history.readings:
        yield from _way(known, reading)


def _way(known: _Known, reading: Reading) -> Iterator[FoundLogAnomaly]:
    position = reading.start
    for before, after in pairwise((Found(reading.start - 1, -1, 0), *reading.found)):
        if after.offset <= before.offset:
            text = f"{reading.partition} {after.offset} comes behind {before.offset}, from {reading.start} on"
            yield FoundLogAnomaly(LogAnomaly.POLL_BACKWARDS, text)
        yield from _skipped(known, reading, position, after.offset)
        position = after.offset + 1
    if reading.end is not None:
        yield from _skipped(known, reading, position, reading.end)


def _skipped(known: _Known, reading: Reading, offset: int, end: int) -> Iterator[FoundLogAnomaly]:
    """Find records in [offset, end), which a reader passed over."""
    column = known.columns.get(reading.partition)
    if column is None:
        return
    for number in range(bisect_left(column.offsets, offset), bisect_left(column.offsets, end)):
        value, at = column.values[number], column.offsets[number]
        owner = known.owners.get(value)
        key = None if owner is None else owner.sent.key
        if not known.is_covered(reading.partition, key, at):
            text = f"value {value} at {reading.partition} {at}, by one who began at {reading.start}"
            yield FoundLogAnomaly(LogAnomaly.SKIPPED, text)


def _growth(seen: Sequence[Seen]) -> Iterator[FoundLogAnomaly]:
    """Find numbers that were less than somebody had seen before."""
    by_name: dict[Hashable, list[Seen]] = defaultdict(list)
    for one in seen:
        by_name[one.name].append(one)
    for name, all_seen in by_name.items():
        ended = sorted(all_seen, key=lambda one: one.completed)
        moments = [one.completed for one in ended]
        most: list[Seen] = []
        for one in ended:
            most.append(one if not most or one.number > most[-1].number else most[-1])
        for one in all_seen:
            count = bisect_right(moments, one.invoked)
            if count and most[count - 1].number > one.number:
                text = f"{name} is {one.number} at {one.invoked}, and was {most[count - 1].number} before"
                yield FoundLogAnomaly(LogAnomaly.BACKWARDS, text)


def _inputs(known: _Known) -> Iterator[FoundLogAnomaly]:
    """Find records that two committed transactions have read."""
    by_input: dict[Place, int] = {}
    for number, produced in enumerate(known.history.produced):
        is_seen = any(sent.value in known.read for sent in produced.sends)
        if produced.ending is Ending.FAIL or not (is_seen or produced.ending is Ending.OK):
            continue
        for place in produced.inputs:
            before = by_input.setdefault(place, number)
            if before != number:
                text = f"{place.partition} {place.offset}: transactions {before} and {number}"
                yield FoundLogAnomaly(LogAnomaly.INPUT_TWICE, text)
