"""Calls of the first node about sessions of tables, as they go over the peer link, and answers at the other one."""

import json
from typing import Any

import pytest

from pqbroker.broker.services.tables import session_calls as calls
from pqbroker.broker.services.tables.session_calls import SessionCall, SessionWork
from pqbroker.broker.services.tables.sessions_here import answer_session_call
from pqbroker.broker.services.topics.staged_places import BatchRefused, PieceUnreadable
from pqbroker.pq.log.sessions import ProducerState, SessionBatch
from pqbroker.pq.log.staged_rows import Decision, Piece, Total, decision
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import SYSTEM_CELL, CellId
from pqbroker.tables.refusals import TableError
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import NAME, create
from tests.pq.rig import START_MS, batch

PIECES = [Piece(index, Total(index + 1, 1 << 100), f"{index:016x}") for index in range(3)]
SESSION = SessionBatch(7, START_MS, 5, 2, producer=ProducerState(3, b'{"a":"\\u0000"}'))


def test_calls_pieces_decisions_and_sessions_are_read_as_they_were_written() -> None:
    call = SessionCall(SessionWork.WRITE, b"\xff" * 16, 5, [CellId(3)], "p\0s\u2028", {"sequence": 1 << 62})
    assert SessionCall.decode(json.loads(json.dumps(call.encode()))) == call
    assert calls.decode_pieces(calls.encode_pieces(PIECES)) == PIECES
    assert calls.decode_pieces(calls.encode_pieces([])) == []
    decided = [decision("s", 1, PIECES), decision("\0", 2, PIECES[:1])]
    assert calls.decode_decisions(calls.encode_decisions(decided)) == decided
    assert calls.decode_decisions(b"") == list[Decision]()
    assert calls.decode_taken(json.loads(json.dumps(calls.encode_taken({4: SESSION})))) == {4: SESSION}
    assert [calls.decode_batch(calls.encode_batch(one)) for one in (None, SESSION)] == [None, SESSION]


@pytest.mark.parametrize(
    "head", [None, 5, {}, [], ["taken"], ["none", "", 1, [], "", {}], ["taken", "zz", 1, [], "", {}],
             ["taken", "00", "x", [], "", {}], ["taken", "00", 1, ["x"], "", {}], ["taken", "00", 1, [], "", 5]],
)  # fmt: skip
def test_what_is_no_call_is_refused(head: Any) -> None:
    with pytest.raises(ValueError, match="a call about sessions was expected"):
        SessionCall.decode(head)


@pytest.mark.parametrize("body", [b"x", b"\0\0\0\1", b"\xff\xff\xff\xff{}", b"\0\0\0\2{}", b"\0\0\0\0"])
def test_what_is_no_decision_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"expected|version|Expecting"):
        calls.decode_decisions(body)


@pytest.mark.parametrize("body", [b"x", b"\n", b"\xff", PIECES[0].name.encode() + b"\n"])
def test_what_is_no_piece_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"no name of a piece|ordinal not in range"):
        calls.decode_pieces(body)


@pytest.mark.parametrize(
    "refusal", [KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "m"), TableError("C", "m", "c"), CommitRefused("m"),
                PieceUnreadable(PIECES[0], "torn")],
)  # fmt: skip
def test_a_refusal_is_raised_at_the_first_node(refusal: Exception) -> None:
    with pytest.raises(type(refusal)) as raised:
        calls.decode_told(json.loads(json.dumps(calls.encode_refusal(refusal))))
    assert {**vars(raised.value)} == {**vars(refusal)}
    with pytest.raises(TableError, match="m"):
        calls.decode_told(calls.encode_refusal(BatchRefused("C", "m", "c")))


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"told": 1, "more": 2}, {"else": 1}, {"kafka": [1]}, {"kafka": ["x", "m"]},
               {"error": ["C"]}, {"unreadable": ["x", "y"]}, {"unreadable": 5}],
)  # fmt: skip
def test_what_is_no_answer_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="an answer about sessions was expected"):
        calls.decode_told(answer)


class Asked:
    """The table of a node, as the first one asks about it."""

    def __init__(self, web: Web) -> None:
        self._node = web.node.server.node
        topic = self._node.cell.current.topics.get(NAME)
        assert topic is not None
        self.topic = topic

    async def ask(
        self, work: SessionWork, more: dict[str, Any] | None = None, body: bytes = b"", **changed: Any
    ) -> tuple[Any, bytes]:
        cells = [self.topic.record.cell_of(0)]
        call = SessionCall(work, self.topic.record.topic_id, len(self.topic.partitions), cells, "s", more or {})
        head = json.loads(json.dumps(call._replace(**changed).encode()))
        return await answer_session_call(self._node, head, body)


async def test_pieces_are_staged_decided_written_and_known_to_the_session(web: Web) -> None:
    await create(web, tablet_count=2)
    asked, sequence = Asked(web), {"sequence": 4}
    rows = bytes(batch(b"a", b"b")[0])
    told, _ = await asked.ask(SessionWork.STAGE, {**sequence, "index": 1, "named_tablet": None}, rows)
    piece = Piece.named(told["told"])
    missing = [piece._replace(number="f" * 16)]
    body = calls.encode_pieces([piece, *missing])
    assert (await asked.ask(SessionWork.MISSING, sequence, body))[1] == calls.encode_pieces(missing)
    assert (await asked.ask(SessionWork.HOLDING))[0] == {"told": [asked.topic.record.topic_id.hex()]}
    stored = calls.encode_decisions([decision("s", 4, [piece])])
    assert (await asked.ask(SessionWork.DECIDE, {}, stored))[0] == {"told": None}
    assert (await asked.ask(SessionWork.DECISIONS))[1] == stored
    assert (await asked.ask(SessionWork.DECISIONS, session="other"))[1] == b""
    assert (await asked.ask(SessionWork.DECISIONS, session=""))[1] == stored
    pieces, left = calls.encode_pieces([piece]), {**sequence, "left_s": 10}
    assert (await asked.ask(SessionWork.VERIFY, left, pieces))[0] == {"told": True}
    assert (await asked.ask(SessionWork.WRITE, {**left, "leaves_out": False}, pieces))[0] == {"told": True}
    assert (await asked.ask(SessionWork.TAKEN))[0] == {"told": []}
    assert (await asked.ask(SessionWork.END, {}, stored))[0] == {"told": None}
    ((index, known),) = (await asked.ask(SessionWork.TAKEN))[0]["told"]
    assert (index, calls.decode_batch(known)) == (1, SessionBatch(4, web.node.clock(), 0, 2, piece.total))
    assert (await asked.ask(SessionWork.HOLDING))[0] == {"told": []}


async def test_a_piece_that_is_out_of_time_waits(web: Web) -> None:
    await create(web, tablet_count=1)
    asked, rows = Asked(web), bytes(batch(b"a")[0])
    told, _ = await asked.ask(SessionWork.STAGE, {"sequence": 1, "index": 0, "named_tablet": 0}, rows)
    more = {"sequence": 1, "left_s": -1.0, "leaves_out": False}
    assert (await asked.ask(SessionWork.WRITE, more, told["told"].encode()))[0] == {"told": False}
    assert (await asked.ask(SessionWork.CLEAR, {"sequence": 1}))[0] == {"told": None}
    assert asked.topic.partitions[0].staged.count == 0


@pytest.mark.parametrize("changed", [{"topic_id": b"x" * 16}, {"partitions": 3}])
async def test_whoever_knows_other_partitions_is_refused(web: Web, changed: dict[str, Any]) -> None:
    await create(web, tablet_count=2)
    told, _ = await Asked(web).ask(SessionWork.TAKEN, **changed)
    assert told["kafka"][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("work", "more", "body"),
    [
        (SessionWork.STAGE, {}, b""), (SessionWork.STAGE, {"sequence": 1, "index": 9, "named_tablet": None}, b""),
        (SessionWork.STAGE, {"sequence": 1, "index": True, "named_tablet": None}, b""),
        (SessionWork.MISSING, {"sequence": 1}, b"9.1." + b"0" * 32 + b"." + b"0" * 16),
        (SessionWork.WRITE_SESSION, {"index": 0, "batch": None, "seen": None}, b""),
        (SessionWork.WRITE_SESSION, {"index": 0, "batch": "00", "seen": None}, b""),
        (SessionWork.FORGET_SESSION, {"index": 0, "seen": None}, b""), (SessionWork.LIST, {"after": [1]}, b""),
        (SessionWork.DECIDE, {}, b""), (SessionWork.VERIFY, {"sequence": "x", "left_s": 1}, b""),
        (SessionWork.FORGET, {"before_ms": None}, b""),
    ],
)  # fmt: skip
async def test_what_cannot_be_done_is_refused_and_changes_nothing(
    web: Web, work: SessionWork, more: dict[str, Any], body: bytes
) -> None:
    await create(web, tablet_count=1)
    asked = Asked(web)
    with pytest.raises(ValueError, match=r"."):
        await asked.ask(work, more, body)
    assert (await asked.ask(SessionWork.TAKEN))[0] == {"told": []}
    assert asked.topic.partitions[0].staged.count == 0


async def test_partitions_of_other_cells_are_not_meant(web: Web) -> None:
    await create(web, tablet_count=1)
    asked = Asked(web)
    others = [CellId(SYSTEM_CELL + 5)]
    with pytest.raises(ValueError, match="partition 0 is none of the cells of the call"):
        await asked.ask(SessionWork.STAGE, {"sequence": 1, "index": 0, "named_tablet": None}, b"", cells=others)
