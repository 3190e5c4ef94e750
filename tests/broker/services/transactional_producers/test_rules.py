"""Each request changes the image of a transactional id by the rules; nothing is stored here."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pqbroker.broker.services.transactional_producers import rules
from pqbroker.broker.services.transactional_producers.rules import NO_CLAIM, Addition, Claim, End, Initialisation, Step
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.tablets.coordinator_rows import (
    TRANSACTIONAL_ROWS,
    PartitionId,
    PendingOffset,
    TransactionalIdState,
    TransactionalImage,
    transactional_row,
)
from tests.support.depth import examples

TIMEOUT_MS = 60_000
PARTITION = PartitionId(b"t" * 16, 3)
OTHER = PartitionId(b"u" * 16, 0)
STATES = [state for state in TransactionalIdState if state is not TransactionalIdState.DEAD]


def initialise(
    image: TransactionalImage | None, claim: Claim = NO_CLAIM, spare_id: int = 900, now_ms: int = 10
) -> Step:
    return rules.initialise(image, "x", Initialisation(TIMEOUT_MS, claim, spare_id), now_ms)


def image_in(state: str, **fields: Any) -> TransactionalImage:
    made = TransactionalImage("x", 7, 4, TIMEOUT_MS, TransactionalIdState(state), changed_ms=5)
    if state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        made = replace(made, started_ms=5, partitions=frozenset({PARTITION}))
    return replace(made, **fields)


def code_of(step: Step) -> ErrorCode:
    return ErrorCode.NONE if step.refusal is None else step.refusal.code


def add(image: TransactionalImage | None, claim: Claim, *partitions: PartitionId, second: bool = False) -> Step:
    return rules.add(image, claim, Addition(frozenset(partitions)), 20, bumps_epochs=second)


def held(step: Step) -> TransactionalImage:
    assert step.refusal is None
    assert step.image is not None
    return step.image


def test_a_new_id_gets_a_producer_id_and_epoch_0() -> None:
    made = held(initialise(None))
    assert (made.producer_id, made.epoch, made.state, made.timeout_ms) == (900, 0, "Empty", TIMEOUT_MS)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_a_producer_that_begins_again_gets_the_next_epoch(state: str) -> None:
    made = held(initialise(image_in(state)))
    assert (made.producer_id, made.epoch, made.last_epoch, made.state) == (7, 5, -1, "Empty")


def test_a_producer_that_names_its_epoch_gets_the_next_one_and_may_ask_twice() -> None:
    once = held(initialise(image_in("Empty"), Claim(7, 4)))
    assert (once.epoch, once.last_epoch) == (5, 4)
    again = held(initialise(once, Claim(7, 4)))
    assert (again.epoch, again.last_epoch) == (5, 4)


@pytest.mark.parametrize("claim", [Claim(7, 3), Claim(7, 5), Claim(8, 4), Claim(8, rules.LAST_EPOCH)])
def test_a_producer_that_names_another_epoch_or_id_is_fenced(claim: Claim) -> None:
    step = initialise(image_in("Empty"), claim)
    assert (code_of(step), step.image) == (ErrorCode.PRODUCER_FENCED, image_in("Empty"))


def test_an_open_transaction_is_aborted_with_a_fencing_epoch_before_its_producer_begins_again() -> None:
    step = initialise(image_in("Ongoing", offsets=(pending(),)))
    assert code_of(step) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert step.image is not None
    assert (step.image.state, step.image.epoch, step.image.offsets) == ("PrepareAbort", 5, ())
    assert code_of(initialise(step.image)) is ErrorCode.CONCURRENT_TRANSACTIONS
    ended = rules.complete(step.image, 30)
    assert held(initialise(ended)).epoch == 6


def test_a_producer_that_was_fenced_begins_again_by_naming_the_epoch_that_it_had() -> None:
    """Kafka allows it, so that a transaction that timed out does not end its producer (KIP-588)."""
    ended = rules.complete(rules.fenced(image_in("Ongoing"), 20), 30)
    begun = held(initialise(ended, Claim(7, 4)))
    assert (begun.epoch, begun.state) == (5, "Empty")
    later = held(initialise(ended))
    assert later.epoch == 6
    assert code_of(initialise(later, Claim(7, 4))) is ErrorCode.PRODUCER_FENCED


def test_an_earlier_instance_does_not_abort_the_transaction_of_a_later_one() -> None:
    open_image = image_in("Ongoing")
    assert initialise(open_image, Claim(7, 3)).image is open_image


def test_behind_the_last_epoch_there_is_a_new_producer_id() -> None:
    used_up = image_in("CompleteCommit", epoch=rules.LAST_EPOCH)
    made = held(initialise(used_up, Claim(7, rules.LAST_EPOCH)))
    assert (made.producer_id, made.epoch, made.last_producer_id, made.last_epoch) == (900, 0, 7, rules.LAST_EPOCH)
    # The answer was lost, so the producer asks with the id that it knows.
    again = held(initialise(made, Claim(7, rules.LAST_EPOCH), spare_id=901))
    assert (again.producer_id, again.epoch) == (900, 0)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_the_first_partition_opens_a_transaction(state: str) -> None:
    made = held(add(image_in(state), Claim(7, 4), PARTITION))
    assert (made.state, made.started_ms, made.partitions) == ("Ongoing", 20, frozenset({PARTITION}))


def test_what_is_added_already_changes_nothing() -> None:
    open_image = image_in("Ongoing")
    assert add(open_image, Claim(7, 4), PARTITION).image is open_image
    more = held(add(open_image, Claim(7, 4), OTHER))
    assert (more.started_ms, more.partitions) == (5, frozenset({PARTITION, OTHER}))


@pytest.mark.parametrize(
    ("claim", "code"),
    [(Claim(8, 4), "INVALID_PRODUCER_ID_MAPPING"), (Claim(7, 3), "PRODUCER_FENCED"), (Claim(7, 5), "PRODUCER_FENCED")],
)
@pytest.mark.parametrize("state", STATES)
def test_another_producer_may_neither_add_nor_end(state: str, claim: Claim, code: str) -> None:
    image = image_in(state)
    assert code_of(add(image, claim, OTHER)).name == code
    assert code_of(rules.end(image, claim, End(is_commit=True), 20)).name == code
    refusal = rules.check_added(image, claim, frozenset({PARTITION}))
    assert refusal is not None
    assert refusal.code.name == code


def test_an_unknown_id_has_no_transaction() -> None:
    assert code_of(add(None, Claim(7, 4), OTHER)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code_of(rules.end(None, Claim(7, 4), End(is_commit=False), 20)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_a_next_transaction_waits_for_the_end_of_the_one_before(state: str) -> None:
    step = add(image_in(state), Claim(7, 4), OTHER)
    assert (code_of(step), step.waits) == (ErrorCode.CONCURRENT_TRANSACTIONS, True)
    fenced = add(image_in(state), Claim(7, 3), OTHER)
    assert (code_of(fenced), fenced.waits) == (ErrorCode.PRODUCER_FENCED, False)


def test_a_next_transaction_waits_also_under_the_producer_id_that_the_end_gave() -> None:
    image = image_in("PrepareCommit", epoch=rules.PRODUCER_EPOCH_MAX, next_producer_id=900)
    assert add(image, Claim(900, 0), OTHER).waits
    assert held(add(rules.complete(image, 30), Claim(900, 0), OTHER)).state == "Ongoing"


@pytest.mark.parametrize(
    ("state", "is_commit", "expected"),
    [
        ("Empty", True, "INVALID_TXN_STATE"), ("Empty", False, "INVALID_TXN_STATE"),
        ("Ongoing", True, "PrepareCommit"), ("Ongoing", False, "PrepareAbort"),
        ("PrepareCommit", True, "CONCURRENT_TRANSACTIONS"), ("PrepareCommit", False, "INVALID_TXN_STATE"),
        ("PrepareAbort", True, "INVALID_TXN_STATE"), ("PrepareAbort", False, "CONCURRENT_TRANSACTIONS"),
        ("CompleteCommit", True, "CompleteCommit"), ("CompleteCommit", False, "INVALID_TXN_STATE"),
        ("CompleteAbort", True, "INVALID_TXN_STATE"), ("CompleteAbort", False, "CompleteAbort"),
    ],
)  # fmt: skip
def test_an_end_in_version_1(state: str, is_commit: bool, expected: str) -> None:
    step = rules.end(image_in(state), Claim(7, 4), End(is_commit), 20)
    assert step.image is not None
    assert (step.refusal.code.name if step.refusal else step.image.state.value) == expected
    assert step.image.epoch == 4


@pytest.mark.parametrize(
    ("state", "is_commit", "claimed", "expected"),
    [
        ("Empty", True, 4, "INVALID_TXN_STATE"), ("Empty", False, 4, "PrepareAbort 5"),
        ("Ongoing", True, 4, "PrepareCommit 5"), ("Ongoing", False, 4, "PrepareAbort 5"),
        ("Ongoing", False, 3, "PRODUCER_FENCED"),
        ("PrepareCommit", True, 3, "CONCURRENT_TRANSACTIONS"), ("PrepareCommit", False, 3, "INVALID_TXN_STATE"),
        ("CompleteCommit", True, 3, "CompleteCommit 4"), ("CompleteCommit", False, 3, "INVALID_TXN_STATE"),
        ("CompleteCommit", True, 4, "INVALID_TXN_STATE"), ("CompleteCommit", False, 4, "PrepareAbort 5"),
        ("CompleteAbort", False, 3, "CompleteAbort 4"), ("CompleteAbort", True, 3, "INVALID_TXN_STATE"),
        ("CompleteAbort", False, 4, "PrepareAbort 5"), ("CompleteAbort", False, 2, "PRODUCER_FENCED"),
    ],
)  # fmt: skip
def test_an_end_in_version_2(state: str, is_commit: bool, claimed: int, expected: str) -> None:
    step = rules.end(image_in(state, bumps_epochs=True), Claim(7, claimed), End(is_commit, bumps_epochs=True), 20)
    assert step.image is not None
    got = step.refusal.code.name if step.refusal else f"{step.image.state.value} {step.image.epoch}"
    assert got == expected


def test_the_end_in_the_last_epoch_gives_a_new_producer_id_also_when_it_is_asked_for_twice() -> None:
    open_image = image_in("Ongoing", epoch=rules.LAST_EPOCH, bumps_epochs=True)
    claim, asked = Claim(7, rules.LAST_EPOCH), End(is_commit=True, bumps_epochs=True, spare_id=900)
    decided = held(rules.end(open_image, claim, asked, 20))
    assert (decided.producer_id, decided.epoch) == (7, rules.PRODUCER_EPOCH_MAX)
    assert rules.claim_after(decided) == (900, 0)
    ended = rules.complete(decided, 30)
    assert (ended.producer_id, ended.epoch, ended.last_producer_id) == (900, 0, 7)
    assert rules.claim_after(held(rules.end(ended, claim, asked, 40))) == (900, 0)


def test_a_producer_of_version_2_whose_transaction_timed_out_may_abort_it_and_goes_on() -> None:
    """Kafka takes the abort for one that is sent again."""
    aborted = rules.complete(rules.fenced(image_in("Ongoing", bumps_epochs=True), 20), 30)
    again = held(rules.end(aborted, Claim(7, 4), End(is_commit=False, bumps_epochs=True), 40))
    assert rules.claim_after(again) == (7, 5)
    refused = rules.end(aborted, Claim(7, 4), End(is_commit=True, bumps_epochs=True), 40)
    assert code_of(refused) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("is_commit", [False, True])
def test_the_end_of_an_empty_transaction_waits_for_the_end_of_the_one_before(is_commit: bool) -> None:
    """franz-go aborts what it has produced nothing for, right behind a commit."""
    ongoing, asked = image_in("Ongoing", bumps_epochs=True), End(is_commit, bumps_epochs=True)
    decided = held(rules.end(ongoing, Claim(7, 4), End(is_commit=True, bumps_epochs=True), 20))
    step = rules.end(decided, Claim(7, 5), asked, 21)
    assert (code_of(step), step.waits) == (ErrorCode.CONCURRENT_TRANSACTIONS, True)
    followed = rules.end(rules.complete(decided, 30), Claim(7, 5), asked, 31)
    assert code_of(followed) is (ErrorCode.INVALID_TXN_STATE if is_commit else ErrorCode.NONE)
    last = image_in("PrepareCommit", epoch=rules.PRODUCER_EPOCH_MAX, next_producer_id=900, bumps_epochs=True)
    assert rules.end(last, Claim(900, 0), asked, 21).waits


def pending(group_id: str = "g", offset: int = 5, partition: PartitionId = PARTITION) -> PendingOffset:
    return PendingOffset(group_id, partition, offset, -1, "", 100, "")


def commit_offsets(image: TransactionalImage, *offsets: PendingOffset, second: bool = False) -> Step:
    addition = Addition(groups=frozenset({"g"}), offsets=offsets)
    return rules.add_offsets(image, Claim(7, 4), addition, 20, bumps_epochs=second)


def test_offsets_need_their_group_in_version_1_and_bring_it_in_version_2() -> None:
    assert code_of(commit_offsets(image_in("Ongoing"), pending())) is ErrorCode.INVALID_TXN_STATE
    assert code_of(commit_offsets(image_in("CompleteCommit", groups={"g"}), pending())) is ErrorCode.INVALID_TXN_STATE
    assert held(commit_offsets(image_in("Ongoing", groups=frozenset({"g"})), pending())).offsets == (pending(),)
    assert held(commit_offsets(image_in("Empty"), pending(), second=True)).groups == {"g"}


def test_the_last_offset_of_a_partition_counts_and_a_commit_keeps_them_and_an_abort_does_not() -> None:
    both = held(commit_offsets(image_in("Empty"), pending(), pending(offset=6), pending(partition=OTHER), second=True))
    assert [(each.partition, each.offset) for each in both.offsets] == [(PARTITION, 6), (OTHER, 5)]
    assert held(rules.end(both, Claim(7, 4), End(is_commit=True), 30)).offsets == both.offsets
    assert held(rules.end(both, Claim(7, 4), End(is_commit=False), 30)).offsets == ()


@pytest.mark.parametrize("state", STATES)
def test_only_an_open_transaction_times_out_and_only_an_unused_id_expires(state: str) -> None:
    image = image_in(state)
    assert rules.ends_at_ms(image) == (5 + TIMEOUT_MS if state == "Ongoing" else None)
    is_at_rest = state in ("Empty", "CompleteCommit", "CompleteAbort")
    assert [rules.is_expired(image, now_ms, 100) for now_ms in (104, 105)] == [False, is_at_rest]


@pytest.mark.parametrize("state", STATES)
def test_a_stored_image_reads_back(state: str) -> None:
    image = image_in(
        state, offsets=(pending(), pending("h", partition=OTHER)), groups=frozenset({"g", "h"}), bumps_epochs=True,
        last_producer_id=6, last_epoch=3, next_producer_id=8, creator="10.0.0.1",
    )  # fmt: skip
    assert TRANSACTIONAL_ROWS.read("x", transactional_row(image)) == image


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("form", 2), ("form", None), ("producer", [7]), ("producer", [-1, 0]), ("producer", [7, 40_000]),
        ("state", "Dead"), ("state", "Odd"), ("times", [1]), ("partitions", [[b"short", 1]]), ("offsets", [["g"]]),
        ("timeout_ms", "x"), ("groups", None),
    ],
)  # fmt: skip
def test_a_row_that_no_version_writes_is_refused(column: str, value: object) -> None:
    row: Any = {**transactional_row(image_in("Ongoing")), column: value}
    with pytest.raises((LookupError, TypeError, ValueError)):
        TRANSACTIONAL_ROWS.read("x", row)


class TwoProducers(RuleBasedStateMachine):
    """Two instances of one producer, in either version of the protocol, that lose answers, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.image: TransactionalImage | None = None
        self.claims: list[Claim | None] = [None, None]
        self.given: list[Claim] = []
        """Every id and epoch that an initialisation gave, in order."""
        self.now_ms = 0
        self.next_id = 100
        self.decisions: dict[tuple[int, int], bool] = {}
        """Outcomes by the producer id and epoch of the markers."""

    def take(self, step: Step) -> bool:
        before, self.image = self.image, step.image
        self.now_ms += 1
        if before is not None and self.image is not None:
            same = before.producer_id == self.image.producer_id
            assert not same or self.image.epoch >= before.epoch
        if self.image is not None and rules.is_prepared(self.image) and self.image is not before:
            key = (self.image.producer_id, self.image.epoch)
            is_commit = self.image.state is TransactionalIdState.PREPARE_COMMIT
            assert self.decisions.get(key, is_commit) is is_commit or not self.image.bumps_epochs
            self.decisions[key] = is_commit
        return step.refusal is None

    def spare(self) -> int:
        self.next_id += 1
        return self.next_id

    @rule(who=st.integers(0, 1), keeps=st.booleans(), names=st.booleans())
    def initialise(self, who: int, keeps: bool, names: bool) -> None:
        claim = self.claims[who] if names else None
        asked = Initialisation(TIMEOUT_MS, claim or NO_CLAIM, self.spare())
        step = rules.initialise(self.image, "x", asked, self.now_ms)
        if self.take(step) and self.image is not None:
            given = Claim(self.image.producer_id, self.image.epoch)
            if claim is None:
                assert given not in self.given, "nobody else has the epoch of a producer that begins"
            self.given.append(given)
            if keeps:
                self.claims[who] = given

    @rule(who=st.integers(0, 1), second=st.booleans(), index=st.integers(0, 3))
    def add(self, who: int, second: bool, index: int) -> None:
        claim = self.claims[who]
        if claim is not None:
            partitions = frozenset({PartitionId(bytes(16), index)})
            if self.take(rules.add(self.image, claim, Addition(partitions), self.now_ms, bumps_epochs=second)):
                assert rules.check_added(self.image, claim, partitions) is None
                other = self.claims[1 - who]
                if other not in (None, claim):
                    assert rules.check_added(self.image, other, partitions) is not None

    @rule(who=st.integers(0, 1), second=st.booleans(), is_commit=st.booleans(), keeps=st.booleans())
    def end(self, who: int, second: bool, is_commit: bool, keeps: bool) -> None:
        claim = self.claims[who]
        if claim is not None:
            asked = End(is_commit, second, self.spare())
            if self.take(rules.end(self.image, claim, asked, self.now_ms)) and keeps and second:
                assert self.image is not None
                self.claims[who] = rules.claim_after(self.image)

    @rule()
    def write_markers(self) -> None:
        if self.image is not None and rules.is_prepared(self.image):
            self.take(Step(rules.complete(self.image, self.now_ms)))

    @rule()
    def time_out(self) -> None:
        if self.image is not None and rules.ends_at_ms(self.image) is not None:
            self.take(Step(rules.fenced(self.image, self.now_ms)))

    @rule(epoch=st.sampled_from([rules.LAST_EPOCH - 1, rules.LAST_EPOCH]))
    def use_up_epochs(self, epoch: int) -> None:
        """Skip to the last epochs, as if the producer had begun so often."""
        if self.image is not None and self.image.state is TransactionalIdState.EMPTY and self.image.epoch < epoch:
            self.image = replace(self.image, epoch=epoch, last_epoch=-1)
            self.given.append(Claim(self.image.producer_id, epoch))

    @invariant()
    def is_whole(self) -> None:
        if self.image is None:
            return
        assert 0 <= self.image.epoch <= rules.PRODUCER_EPOCH_MAX
        is_open = self.image.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        assert is_open or not (self.image.partitions or self.image.groups or self.image.offsets)
        assert is_open == (self.image.started_ms >= 0)
        assert TRANSACTIONAL_ROWS.read("x", transactional_row(self.image)) == self.image


TestTwoProducers = TwoProducers.TestCase
TestTwoProducers.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None, database=None)
