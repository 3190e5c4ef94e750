"""Steps of commits over nodes as they go over the peer link: what was encoded is read, all else is refused."""

from typing import Any

import pytest

from pqbroker.broker.node import commit_calls as calls
from pqbroker.broker.services.commits.away import HomeState, HomeWord, PreparedEnds
from pqbroker.pq.transactions.participants import SentRows
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.tables.refusals import TableError

TRANSACTION = TransactionId(bytes(range(16)))
ONE, OTHER = ParticipantId(TabletId(70_000), 3), ParticipantId(TabletId(70_001))
HEAD = PreparedHead(TRANSACTION, OTHER, 5, 6)
ASKED = calls.RowsAsked(HEAD, [SentRows(ONE, None, b"\0\1"), SentRows(OTHER, 9, b"")], 5000)
ENDS = PreparedEnds(TRANSACTION, None, 5, (ONE, OTHER))
WRONG = "expected|parts have|to be|home says|home has"
DECISION = CommitDecision(TRANSACTION, 9, 10, bytes(16), 2, (ONE,))


def test_rows_to_prepare_are_read_as_they_were_sent() -> None:
    head, body = ASKED.encode()
    read = calls.RowsAsked.decode(head, memoryview(body))
    assert (read.head, read.limit_ms) == (HEAD, 5000)
    assert [(one.participant, one.start, bytes(one.stored)) for one in read.parts] == [(*one,) for one in ASKED.parts]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("given", [None, -1, "", "zz", "00", [], {}, [[]], [[1, 0, None, 5]], [[1, 0, None, -1]]])
def test_what_is_no_rows_to_prepare_is_refused(place: int, given: Any) -> None:
    head, body = ASKED.encode()
    head[place] = given
    with pytest.raises(ValueError, match=WRONG):
        calls.RowsAsked.decode(head, memoryview(body))


def test_a_participant_with_two_parts_is_refused() -> None:
    head, body = ASKED._replace(parts=[ASKED.parts[0]] * 2).encode()
    with pytest.raises(ValueError, match="two parts"):
        calls.RowsAsked.decode(head, memoryview(body))


@pytest.mark.parametrize(
    "refusal",
    [TableError("CODE", "text", "cure"), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "text"), CommitRefused("text")],
)
def test_a_refusal_is_the_same_at_the_other_node(refusal: Exception) -> None:
    with pytest.raises(type(refusal), match="text"):
        calls.decode_positions(calls.encode_refusal(refusal), 2)


def test_a_loss_is_a_refusal_since_nothing_is_decided() -> None:
    with pytest.raises(CommitRefused, match="lost"):
        calls.decode_positions(calls.encode_refusal(ShardLost("lost")), 2)


@pytest.mark.parametrize(
    "told", [None, 5, "", [1], [1, 2, 3], [1, -1], ["1", 2], {}, {"table": []}, {"kafka": ["x", 1]}]
)
def test_what_is_no_answer_of_prepared_rows_is_refused(told: Any) -> None:
    assert calls.decode_positions(calls.encode_positions([0, 5]), 2) == [0, 5]
    with pytest.raises(ValueError, match=WRONG):
        calls.decode_positions(told, 2)


@pytest.mark.parametrize("timestamp", [None, 9])
def test_ends_and_what_is_left_are_read_as_they_were_sent(timestamp: int | None) -> None:
    ends = ENDS._replace(timestamp=timestamp)
    assert calls.decode_ends(calls.encode_ends(ends)) == ends
    assert calls.decode_left(calls.encode_left({ONE: "why"}), ends) == {ONE: "why"}


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("given", ["zz", -1, 1 << 70, [[1]], {"a": 1}])
def test_what_is_no_end_is_refused(place: int, given: Any) -> None:
    head = calls.encode_ends(ENDS)
    head[place] = given
    with pytest.raises(ValueError, match=WRONG):
        calls.decode_ends(head)


@pytest.mark.parametrize("told", [None, 5, [[1, 2]], [[1, 2, "why"]], {"a": 1}])
def test_what_is_no_rest_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match=WRONG):
        calls.decode_left(told, ENDS)


def test_a_question_and_its_answer_are_read_as_they_were_sent() -> None:
    assert calls.decode_question(calls.encode_question([ONE, OTHER], TRANSACTION)) == ([ONE, OTHER], TRANSACTION)
    for word in (HomeWord(HomeState.COMMITTED, DECISION), HomeWord(HomeState.NEVER), HomeWord(HomeState.UNDECIDED)):
        assert calls.decode_word(calls.encode_word(word), TRANSACTION) == word


@pytest.mark.parametrize("head", [None, [], [[], "00"], [5, "00" * 16], [[[1]], "00" * 16], [[[1, "x"]], "00" * 16]])
def test_what_is_no_question_is_refused(head: Any) -> None:
    with pytest.raises(ValueError, match=WRONG):
        calls.decode_question(head)


@pytest.mark.parametrize(
    "told",
    [
        None, [], ["never"], ["maybe", None], ["never", DECISION.encode().hex()], ["committed", None],
        ["committed", "00"], ["committed", DECISION._replace(transaction=TransactionId(bytes(16))).encode().hex()],
    ],
)  # fmt: skip
def test_what_is_no_word_of_a_home_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match=WRONG):
        calls.decode_word(told, TRANSACTION)


def test_the_most_telling_of_two_words_counts() -> None:
    never, unknown = HomeWord(HomeState.NEVER), HomeWord(HomeState.UNKNOWN)
    committed = HomeWord(HomeState.COMMITTED, DECISION)
    for one, other, both in ((never, unknown, unknown), (never, committed, committed), (unknown, committed, committed)):
        assert one.with_another(other) == other.with_another(one) == both
