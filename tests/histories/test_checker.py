"""Each anomaly is found in a history that has it, by its name; and none in what a store with snapshots does."""

import random
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import pytest

from tests.histories.checker import Anomaly, check
from tests.histories.cycles import Edge, components, cycle, without
from tests.histories.history import Access, Ending, Recorded

CLIENTS = 4
KEYS = "abcde"


class Hand:
    """A history by hand: transactions one after another, unless `within` says otherwise. Texts as `a1 b- c2`: a key
    each with its value, `-` for none."""

    def __init__(self) -> None:
        self.history: list[Recorded] = []

    def add(
        self, reads: str = "", writes: str = "", at: tuple[int | None, int | None] = (None, None), *,
        ending: Ending = Ending.OK, order: tuple[int, int] | None = None,
    ) -> "Hand":
        """Add a transaction; `at`: timestamps of start and commit; `order`: its first and last moment."""
        number = len(self.history)
        invoked, completed = order or (2 * number, 2 * number + 1)
        one = Recorded(_accesses(reads), _accesses(writes), ending, invoked, completed, *at)
        self.history.append(one)
        return self

    @property
    def found(self) -> set[Anomaly]:
        return {one.anomaly for one in check(self.history)}


def _accesses(text: str) -> list[Access]:
    return [Access(one[0], None if one[1:] == "-" else int(one[1:])) for one in text.split()]


AT_ONCE = (0, 100)


def test_an_empty_history_and_one_of_single_steps_are_good() -> None:
    assert not check([])
    good = Hand().add("", "a1 b1", (None, 10)).add("a1 b1", "a2", (15, 20)).add("a2 b1", "", (25, None))
    assert not good.found


def test_a_value_that_nobody_wrote_is_found() -> None:
    assert Hand().add("a7").found == {Anomaly.UNWRITTEN}


def test_a_read_of_an_aborted_write_is_found() -> None:
    assert Hand().add("", "a1", ending=Ending.FAIL).add("a1").found == {Anomaly.ABORTED}


def test_a_read_by_a_transaction_that_was_aborted_later_counts() -> None:
    aborted = Hand().add("", "a1", ending=Ending.FAIL).add("a1", "b1", ending=Ending.FAIL)
    assert aborted.found == {Anomaly.ABORTED}


def test_a_write_of_which_nobody_knows_is_committed_once_it_is_seen() -> None:
    unknown = Hand().add("", "a1 b1", ending=Ending.UNKNOWN, order=AT_ONCE)
    assert not unknown.add("a1 b1").found
    torn = Hand().add("", "a1 b1", ending=Ending.UNKNOWN, order=AT_ONCE).add("a1").add("b-")
    assert torn.found == {Anomaly.STALE}
    missed = Hand().add("", "a1 b1", ending=Ending.UNKNOWN, order=AT_ONCE)
    assert missed.add("a1", "", (10, None), order=AT_ONCE).add("b-", "", (20, None), order=AT_ONCE).found == {
        Anomaly.MISSED
    }


def test_a_read_of_what_its_writer_wrote_over_is_found() -> None:
    assert Hand().add("", "a1 a2", (None, 10)).add("a1", "", (20, None)).found == {Anomaly.INTERMEDIATE}


def test_a_transaction_of_which_a_reader_sees_a_part_is_torn() -> None:
    torn = Hand().add("", "a1 b1", order=AT_ONCE).add("", "a2 b2", order=AT_ONCE).add("a1 b1", "a3 b3", order=AT_ONCE)
    assert not torn.found
    assert Anomaly.TORN in torn.add("a3 b1", order=AT_ONCE).found
    of_nothing = Hand().add("", "a1 b1", order=AT_ONCE).add("a1 b-", order=AT_ONCE)
    assert of_nothing.found == {Anomaly.TORN, Anomaly.G_SINGLE}


def test_two_that_read_a_version_and_write_the_next_one_lose_an_update() -> None:
    lost = Hand().add("", "a1").add("a1", "a2", order=(2, 5)).add("a1", "a3", order=(3, 4))
    assert Anomaly.LOST_UPDATE in lost.found
    assert Anomaly.LOST_UPDATE in Hand().add("a-", "a2", order=AT_ONCE).add("a-", "a3", order=AT_ONCE).found


def test_a_write_over_one_that_came_after_the_start_loses_an_update() -> None:
    blind = Hand().add("", "a1", (None, 15), order=AT_ONCE).add("b-", "a2", (10, 20), order=AT_ONCE)
    assert blind.found == {Anomaly.LOST_UPDATE}
    assert not Hand().add("", "a1", (None, 9), order=AT_ONCE).add("b-", "a2", (10, 20), order=AT_ONCE).found


def test_reads_that_are_not_of_the_moment_of_the_start_are_found() -> None:
    future = Hand().add("", "a1", (None, 20), order=AT_ONCE).add("a1", "", (10, None), order=AT_ONCE)
    assert future.found == {Anomaly.FUTURE}
    missed = Hand().add("", "a1", (None, 10), order=AT_ONCE).add("a-", "", (20, None), order=AT_ONCE)
    assert missed.found == {Anomaly.MISSED}
    earlier = Hand().add("", "a1", (None, 10), order=AT_ONCE).add("", "a2", (None, 20), order=AT_ONCE)
    assert earlier.add("a1", "", (30, None), order=AT_ONCE).found == {Anomaly.MISSED}
    assert not Hand().add("", "a1", (None, 10), order=AT_ONCE).add("a-", "", (9, None), order=AT_ONCE).found


def test_a_deleted_row_is_read_as_none_until_it_is_written_again() -> None:
    history = Hand().add("", "a1", (None, 10)).add("", "a-", (None, 20)).add("", "a2", (None, 30))
    moments = ((5, "a-"), (15, "a1"), (25, "a-"), (35, "a2"))
    for start, read in moments:
        history.add(read, "", (start, None), order=(0, 100 + start))
    assert not history.found
    assert history.add("a-", "", (36, None), order=AT_ONCE).found == {Anomaly.MISSED}


def test_a_delete_that_may_have_come_at_any_time_explains_a_row_that_is_gone() -> None:
    maybe = Hand().add("", "a1", (None, 10)).add("", "a-", ending=Ending.UNKNOWN)
    assert not maybe.add("a-", "", (20, None)).add("a1", "", (19, None), order=AT_ONCE).found


def test_a_session_that_begins_after_an_acknowledgement_sees_it() -> None:
    assert Hand().add("", "a1").add("a-").found == {Anomaly.STALE}
    assert not Hand().add("", "a1", order=(0, 3)).add("a-", order=(2, 4)).found
    behind = Hand().add("", "a1", (None, 20)).add("b-", "", (10, None))
    assert behind.found == {Anomaly.STALE}
    assert Hand().add("", "a1", (None, 20)).add("", "b1", (None, 19)).found == {Anomaly.STALE}


def test_a_cycle_of_writes_is_found() -> None:
    dirty = Hand().add("a-", "a1 b1", order=AT_ONCE).add("a1", "a2", order=AT_ONCE).add("a2", "a3 c1", order=AT_ONCE)
    assert not dirty.found
    cyclic = Hand().add("b2", "a1 b3", order=AT_ONCE).add("a1", "a2 b2", order=AT_ONCE)
    assert Anomaly.G0 in cyclic.found


def test_a_cycle_of_writes_and_reads_is_found() -> None:
    circular = Hand().add("b1", "a1", order=AT_ONCE).add("a1", "b1", order=AT_ONCE)
    assert Anomaly.G1C in circular.found
    assert Anomaly.G0 not in circular.found


def test_a_cycle_with_one_anti_dependency_is_found() -> None:
    """The second saw the third's write by way of the first, and what was before it itself."""
    skewed = Hand().add("", "a1", order=AT_ONCE).add("a1", "b1", order=AT_ONCE).add("b1 a-", "c1", order=AT_ONCE)
    assert skewed.found == {Anomaly.G_SINGLE}


def test_write_skew_is_allowed_unless_all_that_was_read_was_written() -> None:
    skew = Hand().add("a- b-", "a1", (10, 20), order=AT_ONCE).add("a- b-", "b1", (11, 21), order=AT_ONCE)
    assert not skew.found
    strict = Hand().add("a- b-", "a1 b2", order=AT_ONCE).add("a- b-", "b1 a2", order=AT_ONCE)
    assert {Anomaly.G2, Anomaly.LOST_UPDATE} <= strict.found


def test_what_is_written_twice_is_no_history() -> None:
    with pytest.raises(ValueError, match="1 was written to a twice"):
        check(Hand().add("", "a1").add("", "a1").history)


def test_components_are_those_that_reach_each_other() -> None:
    ring = {1: {2: {Edge.WW}}, 2: {3: {Edge.WR}}, 3: {1: {Edge.RW}}, 4: {1: {Edge.WW}}, 5: {5: {Edge.WW}}}
    assert list(components(ring)) == [frozenset({1, 2, 3})]
    assert cycle(ring, frozenset({1, 2, 3})) == [1, 2, 3, 1]
    assert not list(components(without(ring, Edge.RW)))


@dataclass
class SnapshotStore:
    """A store as ours is to be, with defects on demand."""

    chance: random.Random
    defect: str = ""
    now: int = 0
    rows: defaultdict[Hashable, list[tuple[int, int | None]]] = field(default_factory=lambda: defaultdict(list))

    def tick(self) -> int:
        self.now += 1
        return self.now

    def read(self, key: Hashable, start: int) -> int | None:
        is_late = self.defect == "reads now" and self.chance.random() < 0.3
        is_early = self.defect == "reads before" and self.chance.random() < 0.3
        at = self.now if is_late else start - 20 * is_early
        return next((value for stamp, value in reversed(self.rows[key]) if stamp <= at), None)

    def commit(self, start: int | None, writes: Sequence[Access]) -> int | None:
        if start is not None and self.defect != "takes all":
            for write in writes:
                if self.rows[write.key] and self.rows[write.key][-1][0] > start:
                    return None
        stamp = self.tick()
        kept = writes[:1] if self.defect == "tears" and self.chance.random() < 0.2 else writes
        for write in kept:
            self.rows[write.key].append((stamp, write.value))
        return stamp


@dataclass
class Step:
    """A client's transaction, half done."""

    reads: list[Access]
    start: int | None
    invoked: int


def played(seed: int, defect: str = "", length: int = 150) -> list[Recorded]:
    """Return a history of a few clients on such a store."""
    chance = random.Random(seed)
    store, value, moment = SnapshotStore(chance, defect), 0, 0
    history: list[Recorded] = []
    clients: list[Step | None] = [None] * CLIENTS
    while len(history) < length:
        moment += 1
        number = chance.randrange(CLIENTS)
        step = clients[number]
        if step is None:
            start = store.tick() if chance.random() < 0.8 else None
            keys = chance.sample(KEYS, chance.randint(0, 3)) if start is not None else []
            clients[number] = Step([Access(key, None) for key in keys], start, moment)
            continue
        if step.start is not None:
            step.reads = [Access(one.key, store.read(one.key, step.start)) for one in step.reads]
        keys = chance.sample(KEYS, chance.randint(0, 3) if step.start is not None else 1)
        writes = []
        for key in keys:
            value += 1
            writes.append(Access(key, None if chance.random() < 0.1 else value))
        commit = store.commit(step.start, writes) if writes else None
        ending = Ending.FAIL if writes and commit is None else Ending.OK
        is_heard = chance.random() < 0.95 or any(write.value is None for write in writes)
        if not is_heard:
            ending, commit = Ending.UNKNOWN, None
        moment += 1
        history.append(Recorded(step.reads, writes, ending, step.invoked, moment, step.start, commit, number))
        clients[number] = None
    return history


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_found_in_histories_of_a_store_with_snapshots(seed: int) -> None:
    assert not check(played(seed))


@pytest.mark.parametrize(
    ("defect", "anomaly"),
    [
        ("takes all", Anomaly.LOST_UPDATE), ("reads now", Anomaly.FUTURE), ("reads before", Anomaly.MISSED),
        ("reads before", Anomaly.STALE), ("tears", Anomaly.MISSED),
    ],
)  # fmt: skip
def test_a_defect_of_the_store_is_found_in_its_histories(defect: str, anomaly: Anomaly) -> None:
    found = {one.anomaly for seed in range(10) for one in check(played(seed, defect))}
    assert anomaly in found
