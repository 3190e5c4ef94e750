"""Consumers of one partition: what is stored of them, their limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.consumers import ConsumerOffset, Consumers, Session, committed_in, decode, encode, recreated
from pqbroker.pq.log.keys import consumer_key, consumer_range, parse_consumer_key, producer_key
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.kv.commands import INLINE, KEY_BYTES_MAX, DeleteRange, Write

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=50)
SESSIONS = st.builds(Session, INT64, INT64, TEXT)
CREATORS = TEXT.filter(lambda text: "#" not in text)
EPOCHS = st.integers(-(1 << 31), (1 << 31) - 1)
STATES = st.builds(ConsumerOffset, INT64, EPOCHS, TEXT, INT64, INT64, SESSIONS, CREATORS)


def consumers(count_max: int = 2, metadata_max: int = 4) -> Consumers:
    return Consumers(7, count_max, metadata_max)


def refusal(found: Consumers, group_id: str, state: ConsumerOffset) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        found.plan(group_id, state)
    return refused.value.code


@given(STATES)
def test_a_stored_consumer_is_read_as_it_was(state: ConsumerOffset) -> None:
    assert decode(memoryview(encode(state))) == state


@given(st.integers(0, 10**10 - 1), TEXT)
def test_a_consumers_key_gives_the_group_and_lies_in_its_partitions_range(partition: int, group_id: str) -> None:
    key = consumer_key(partition, group_id)
    assert parse_consumer_key(key) == group_id
    lo, hi = consumer_range(partition)
    assert lo <= key < hi
    assert not lo <= producer_key(partition, 1) < hi


def test_an_offset_is_stored_in_the_row_itself_and_seen_when_it_is_durable() -> None:
    found = consumers()
    state = ConsumerOffset(5, 2, "here")
    command = found.plan("g", state)
    assert isinstance(command, Write)
    assert (command.key, command.channel) == (b"m0000000007cg", INLINE)
    assert found.get("g") is None
    found.settle("g", state, is_durable=True)
    assert found.get("g") == state
    assert dict(found.all()) == {"g": state}


def test_what_came_to_nothing_changes_nothing() -> None:
    found = consumers()
    first, second = ConsumerOffset(5), ConsumerOffset(6)
    found.plan("g", first)
    found.settle("g", first, is_durable=True)
    for state in (second, None):
        found.plan("g", state)
        found.settle("g", state, is_durable=False)
        assert found.get("g") == first


def test_a_deleted_consumer_is_gone() -> None:
    found = consumers()
    found.plan("g", ConsumerOffset(5))
    found.settle("g", ConsumerOffset(5), is_durable=True)
    assert found.plan("g", None) == DeleteRange(b"m0000000007cg", True, b"m0000000007cg", True)
    found.settle("g", None, is_durable=True)
    assert not found.all()


def test_metadata_up_to_the_limit_is_taken() -> None:
    found = consumers()
    found.plan("g", ConsumerOffset(1, metadata="äöüß"))
    assert refusal(found, "g", ConsumerOffset(1, metadata="abcde")) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_group_id_too_long_for_a_key_is_refused() -> None:
    found = consumers()
    room = KEY_BYTES_MAX - len(consumer_key(7, ""))
    found.plan("g" * room, ConsumerOffset(1))
    assert refusal(found, "g" * (room + 1), ConsumerOffset(1)) == ErrorCode.INVALID_GROUP_ID


def test_one_consumer_too_many_is_refused_and_those_on_their_way_count() -> None:
    found = consumers(count_max=2)
    state = ConsumerOffset(1)
    found.plan("a", state)
    found.plan("a", state)
    found.plan("b", state)
    assert refusal(found, "c", state) == ErrorCode.POLICY_VIOLATION
    found.settle("a", state, is_durable=True)
    assert refusal(found, "c", state) == ErrorCode.POLICY_VIOLATION
    found.settle("b", state, is_durable=False)
    found.plan("c", state)
    found.settle("a", state, is_durable=True)
    found.plan("a", state)
    found.settle("a", None, is_durable=True)
    found.plan("d", state)
    assert refusal(found, "e", state) == ErrorCode.POLICY_VIOLATION


SESSION = Session(1, 1, "s")


def native(
    offset: int, stored: ConsumerOffset | None = None, *, strict: bool = True, session: Session = SESSION
) -> ConsumerOffset | None:
    """A native commit to a partition [10, 20]."""
    return committed_in(session, stored, ConsumerOffset(offset, metadata="m"), (10, 20), strict=strict)


@pytest.mark.spec("A.14")
@pytest.mark.parametrize("strict", [True, False])
def test_a_native_commit_moves_forwards_only(strict: bool) -> None:
    stored = ConsumerOffset(15)
    assert native(16, stored, strict=strict) == ConsumerOffset(16, metadata="m", session=Session(1, 1, "s"))
    assert native(15, stored, strict=strict) is None
    assert native(3, stored, strict=strict) is None


@pytest.mark.spec("A.14")
@pytest.mark.parametrize("offset", [9, 21])
def test_a_strict_commit_outside_the_partition_is_refused(offset: int) -> None:
    with pytest.raises(KafkaError) as refused:
        native(offset)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.spec("A.14")
def test_a_commit_that_is_not_strict_is_clipped_to_the_end() -> None:
    for offset, expected in ((9, 9), (10, 10), (20, 20), (21, 20)):
        found = native(offset, strict=False)
        assert found is not None
        assert found.offset == expected


@pytest.mark.spec("A.14")
@pytest.mark.parametrize("session", [Session(1, 4, "old"), Session(0, 9, "old")])
def test_a_session_that_was_replaced_commits_nothing(session: Session) -> None:
    stored = ConsumerOffset(12, session=Session(1, 5, "new"))
    for offset in (11, 13):
        with pytest.raises(KafkaError) as refused:
            native(offset, stored, session=session)
        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
    assert native(13, stored, session=Session(1, 5, "new")) is not None
    assert native(13, stored, session=Session(2, 0, "newer")) is not None


@pytest.mark.spec("A.14")
def test_a_re_created_consumer_reads_from_zero_and_ends_earlier_sessions() -> None:
    stored = ConsumerOffset(12, session=Session(3, 5, "s"))
    again = recreated(stored)
    assert (again.offset, again.session.generation) == (0, 4)
    with pytest.raises(KafkaError):
        native(13, again, session=Session(3, 6, "s"))
    assert recreated(None) == ConsumerOffset(0)


def test_a_row_of_before_creators_were_kept_is_read() -> None:
    state = ConsumerOffset(5, 2, "here", 7, -1, Session(1, 2, "s"))
    assert encode(state)[0] == 1
    assert decode(encode(state)) == state
    assert encode(state._replace(creator="192.0.2.1"))[0] == 2


def test_a_row_whose_texts_are_longer_than_it_is_refused() -> None:
    row = encode(ConsumerOffset(5, creator="192.0.2.1"))
    for size in range(len(row)):
        with pytest.raises(ValueError, match=r"it has|it is empty"):
            decode(row[:size])


def commit(found: Consumers, group_id: str, creator: str, *, is_durable: bool = True) -> ErrorCode:
    state = ConsumerOffset(1, creator=creator)
    try:
        found.plan(group_id, state)
    except KafkaError as refused:
        return refused.code
    found.settle(group_id, state, is_durable=is_durable)
    return ErrorCode.NONE


def test_invented_groups_of_one_address_leave_room_for_groups_of_others_and_displace_none() -> None:
    found = consumers(count_max=64)
    codes = [commit(found, f"invented-{number}", "192.0.2.1") for number in range(64)]
    assert codes == [ErrorCode.NONE] * 56 + [ErrorCode.POLICY_VIOLATION] * 8
    assert commit(found, "honest", "192.0.2.2") == ErrorCode.NONE
    assert commit(found, "invented-0", "192.0.2.1") == ErrorCode.NONE
    assert commit(found, "invented-64", "192.0.2.1") == ErrorCode.POLICY_VIOLATION
    assert len(found.all()) == 57


def test_a_group_counts_for_who_created_it_whoever_commits_after_a_start_too() -> None:
    found = consumers(count_max=64)
    for number in range(56):
        assert commit(found, f"g{number}", "192.0.2.1") == ErrorCode.NONE
        assert commit(found, f"g{number}", "192.0.2.2") == ErrorCode.NONE
    again = Consumers(7, 64, 4, [(group_id, decode(encode(state))) for group_id, state in found.all().items()])
    assert commit(again, "more", "192.0.2.1") == ErrorCode.POLICY_VIOLATION
    assert commit(again, "more", "192.0.2.2") == ErrorCode.NONE


def test_what_came_to_nothing_or_was_deleted_is_held_by_nobody() -> None:
    found = consumers(count_max=64)
    for number in range(56):
        commit(found, f"g{number}", "192.0.2.1", is_durable=number > 0)
    assert commit(found, "g0", "192.0.2.1") == ErrorCode.NONE
    found.plan("g1", None)
    found.settle("g1", None, is_durable=True)
    assert commit(found, "g56", "192.0.2.1") == ErrorCode.NONE
    assert commit(found, "g57", "192.0.2.1") == ErrorCode.POLICY_VIOLATION
