"""Finds what a history breaks of snapshot isolation, and of serializability where transactions write what they read.

In the manner of Elle (Kingsbury, Alvaro 2020), with Adya's names for cycles. Snapshots are known besides: a broker
gives each transaction the timestamp at which it reads, and each commit its own. Reads count whatever became of their
transaction. Pure.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tests.histories.cycles import Edge, Graph, components, cycle, way, without
from tests.histories.history import Ending, Recorded
from tests.histories.versions import BEGINNING, Versions


class Anomaly(StrEnum):
    """Promises that a history may break."""

    UNWRITTEN = "a read of what nobody wrote"
    ABORTED = "G1a: a read of what was aborted"
    INTERMEDIATE = "G1b: a read of what its writer wrote over"
    TORN = "a torn transaction: a reader sees a part of its writes"
    LOST_UPDATE = "a lost update"
    FUTURE = "a read of what was committed after the snapshot"
    MISSED = "a read that misses what was committed before the snapshot"
    STALE = "a session sees less than was acknowledged before it began"
    G0 = "G0: a cycle of writes"
    G1C = "G1c: a cycle of writes and reads"
    G_SINGLE = "G-SI: a cycle with one anti-dependency"
    G2 = "G2: a cycle among transactions that write what they read"


@dataclass(frozen=True, slots=True)
class FoundAnomaly:
    """A broken promise, and the transactions that break it, by their numbers in the history."""

    anomaly: Anomaly
    transactions: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.text}, transactions {self.transactions}"


def check(history: Sequence[Recorded]) -> list[FoundAnomaly]:
    """Return everything that a history breaks; nothing: it keeps all."""
    versions = Versions(history)
    return [
        *_check_values(versions),
        *_check_torn(versions),
        *_check_updates(versions),
        *_check_snapshots(versions),
        *_check_sessions(versions),
        *_check_cycles(versions),
    ]


def _check_values(versions: Versions) -> Iterator[FoundAnomaly]:
    for number, one in enumerate(versions.history):
        for read in one.reads:
            if read.value is None:
                continue
            writer = versions.writers.get((read.key, read.value))
            text = f"{read.key} was {read.value}"
            if writer is None:
                yield FoundAnomaly(Anomaly.UNWRITTEN, (number,), text)
            elif versions.history[writer].ending is Ending.FAIL:
                yield FoundAnomaly(Anomaly.ABORTED, (writer, number), text)
            elif versions.finals(writer)[read.key] != read.value:
                yield FoundAnomaly(Anomaly.INTERMEDIATE, (writer, number), text)


def _check_torn(versions: Versions) -> Iterator[FoundAnomaly]:
    """A reader that sees a write of a transaction sees all of them, or what came later."""
    for number in range(len(versions.history)):
        seen = {read.key: version for read, version in versions.reads(number)}
        for key, writer in seen.items():
            if writer in (BEGINNING, number):
                continue
            for other in versions.finals(writer).keys() & seen.keys():
                if writer in versions.later(other, seen[other]):
                    text = f"its {key} was seen, and before its {other}"
                    yield FoundAnomaly(Anomaly.TORN, (writer, number), text)


def _check_updates(versions: Versions) -> Iterator[FoundAnomaly]:
    """Nobody writes over what came between a transaction's start and its commit; the first one to commit wins."""
    updates: dict[tuple[object, int], int] = {}
    for number in sorted(versions.committed):
        keys = versions.finals(number).keys()
        for read, version in versions.reads(number):
            if read.key not in keys:
                continue
            other = updates.setdefault((read.key, version), number)
            if other != number:
                yield FoundAnomaly(Anomaly.LOST_UPDATE, (other, number), f"both read {read} and wrote it")
    yield from _check_first_wins(versions)


def _check_first_wins(versions: Versions) -> Iterator[FoundAnomaly]:
    written: defaultdict[object, list[tuple[int, int]]] = defaultdict(list)
    for number in versions.committed:
        commit = versions.history[number].commit
        if commit is not None:
            for key in versions.finals(number):
                written[key].append((commit, number))
    for key, commits in written.items():
        commits.sort()
        for (before, other), (_, number) in pairwise(commits):
            start = versions.history[number].start
            if start is not None and before > start:
                text = f"the second wrote {key}, which the first had written since its start at {start}"
                yield FoundAnomaly(Anomaly.LOST_UPDATE, (other, number), text)


def _check_snapshots(versions: Versions) -> Iterator[FoundAnomaly]:
    """Each read is of the moment of the start."""
    for number in range(len(versions.history)):
        start = versions.history[number].start
        if start is None:
            continue
        for read, version in versions.reads(number):
            commit = None if version == BEGINNING else versions.history[version].commit
            if commit is not None and commit > start:
                text = f"{read} is of {commit}, and was read at {start}"
                yield FoundAnomaly(Anomaly.FUTURE, (version, number), text)
            for later in versions.later(read.key, version):
                since = versions.visible_from[later]
                if since is not None and since <= start and later != number:
                    text = f"{read} was read at {start}, and stood so until {since}"
                    yield FoundAnomaly(Anomaly.MISSED, (later, number), text)
                    break


def _check_sessions(versions: Versions) -> Iterator[FoundAnomaly]:
    """Check that a transaction sees each commit that its client or a reader had seen before it began."""
    for number in range(len(versions.history)):
        one = versions.history[number]
        for read, version in versions.reads(number):
            for later in versions.later(read.key, version):
                if later != number and versions.known_at[later] < one.invoked:
                    text = f"{read} was read after its next version was known"
                    yield FoundAnomaly(Anomaly.STALE, (later, number), text)
                    break
    yield from _check_timestamps(versions)


def _check_timestamps(versions: Versions) -> Iterator[FoundAnomaly]:
    """Timestamps follow the order that clients see: none is below one that was acknowledged before."""
    history = versions.history
    ended = sorted(
        (one.completed, one.commit, number) for number, one in enumerate(history)
        if one.ending is Ending.OK and one.commit is not None
    )  # fmt: skip
    begun = sorted((one.invoked, number) for number, one in enumerate(history))
    place, last, of = 0, -1, -1
    for invoked, number in begun:
        while place < len(ended) and ended[place][0] < invoked:
            _, commit, other = ended[place]
            last, of = max((last, of), (commit, other))
            place += 1
        for stamp in (history[number].start, history[number].commit):
            if stamp is not None and stamp < last:
                text = f"timestamp {stamp} was given after {last} was acknowledged"
                yield FoundAnomaly(Anomaly.STALE, (of, number), text)


def _check_cycles(versions: Versions) -> Iterator[FoundAnomaly]:
    graph = _graph(versions)
    writes = without(graph, Edge.WR, Edge.RW)
    known = without(graph, Edge.RW)
    for found in components(writes):
        yield _of_cycle(Anomaly.G0, cycle(writes, found))
    for found in components(known):
        steps = cycle(known, found)
        if any(part <= found for part in components(writes)):
            continue
        yield _of_cycle(Anomaly.G1C, steps)
    yield from _check_single(graph, known)
    strict = _strict(versions, graph)
    for found in components(strict):
        yield _of_cycle(Anomaly.G2, cycle(strict, found))


def _check_single(graph: Graph, known: Graph) -> Iterator[FoundAnomaly]:
    for found in components(graph):
        for reader in sorted(found):
            for writer, kinds in graph.get(reader, {}).items():
                if writer not in found or Edge.RW not in kinds:
                    continue
                back = way(known, writer, reader, found)
                if back is not None:
                    yield _of_cycle(Anomaly.G_SINGLE, [reader, *back])
                    break


def _strict(versions: Versions, graph: Graph) -> Graph:
    """Return the graph of those transactions that write all that they read."""
    chosen = {
        number for number in versions.committed
        if {read.key for read in versions.history[number].reads} <= versions.finals(number).keys()
    }  # fmt: skip
    return {
        node: {other: kinds for other, kinds in edges.items() if other in chosen}
        for node, edges in graph.items() if node in chosen
    }  # fmt: skip


def _graph(versions: Versions) -> Graph:
    """Return the dependencies of committed transactions on each other."""
    graph: defaultdict[int, defaultdict[int, set[Edge]]] = defaultdict(lambda: defaultdict(set))
    for after in versions.after.values():
        for version, others in after.items():
            for other in others:
                if version != BEGINNING and version != other:
                    graph[version][other].add(Edge.WW)
    for number in versions.committed:
        for read, version in versions.reads(number):
            if version not in (BEGINNING, number):
                graph[version][number].add(Edge.WR)
            for other in versions.after[read.key][version]:
                if other != number:
                    graph[number][other].add(Edge.RW)
    return graph


def _of_cycle(anomaly: Anomaly, steps: Sequence[int]) -> FoundAnomaly:
    return FoundAnomaly(anomaly, tuple(steps[:-1]), " → ".join(map(str, steps)))
