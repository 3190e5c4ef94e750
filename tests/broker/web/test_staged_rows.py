"""Batches that are staged in pieces and committed by one request: each once, however its rows are split."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.services.topics import staged_places, staged_rows
from pqbroker.broker.web.routing.stream_forms import ARROW_STREAM
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_arrow_rows import stream
from tests.broker.web.test_inserting import row
from tests.broker.web.test_sessions_kept import command
from tests.broker.web.test_tables import NAME, create, reopened, select

STAGED = f"/v1/tables/{NAME}/staged-rows"
ROWS = [row(number) for number in range(20)]


async def stage(web: Web, *rows: dict[str, Any], sequence: int = 0, session: str = "q", hint: int | None = None) -> Any:
    query = "" if hint is None else f"?tablet_hint={hint}"
    status, answer = await web.ask("POST", STAGED + query, {"rows": rows, "session": session, "sequence": sequence})
    assert status == 200, answer
    return answer["pieces"]


def body(pieces: list[Any], sequence: int = 0, session: str = "q", **more: Any) -> dict[str, Any]:
    return {"pieces": [piece["name"] for piece in pieces], "session": session, "sequence": sequence, **more}


async def commit(web: Web, pieces: list[Any], sequence: int = 0, session: str = "q", **more: Any) -> Any:
    status, answer = await web.ask("POST", f"{STAGED}/commit", body(pieces, sequence, session, **more))
    assert status == 200, answer
    return answer


async def split(web: Web, rows: list[dict[str, Any]], *sizes: int, sequence: int = 0) -> list[Any]:
    """The rows staged in pieces of these sizes."""
    pieces, begin = [], 0
    for size in sizes:
        pieces += await stage(web, *rows[begin : begin + size], sequence=sequence)
        begin += size
    assert begin == len(rows)
    return pieces


async def numbers(web: Web, count: int = 3) -> list[int]:
    return [one["id"] for index in range(count) for one in await select(web, tablet_index=index)]


def staged(web: Web) -> list[int]:
    """Bytes of staged rows by tablet."""
    topic = web.node.server.node.cell.current.topics.get(NAME)
    return [] if topic is None else [partition.staged.bytes for partition in topic.partitions]


async def test_nobody_sees_staged_rows_before_their_commit_which_keeps_their_order(web: Web) -> None:
    await create(web, tablet_count=3)
    pieces = await split(web, ROWS, 7, 13)
    assert sum(map(bool, staged(web))) in (1, 2)
    assert await numbers(web) == []
    assert await commit(web, pieces) == {"row_count": 20, "duplicate": False, "done": True}
    assert sorted(await numbers(web)) == list(range(20))
    assert staged(web) == [0, 0, 0]
    hinted = [await stage(web, *ROWS[begin : begin + 5], sequence=1, hint=2) for begin in (0, 5)]
    await commit(web, [*hinted[1], *hinted[0]], 1)
    assert [one["id"] for one in await select(web, tablet_index=2)][-10:] == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


async def test_the_same_rows_in_another_split_are_not_written_again(web: Web) -> None:
    await create(web, tablet_count=3)
    await commit(web, await split(web, ROWS, 7, 13))
    dice = random.Random(1)
    for sizes in ((20,), (1, 19), (5, 5, 5, 5)):
        rows = dice.sample(ROWS, len(ROWS))
        assert await commit(web, await split(web, rows, *sizes)) == {"row_count": 20, "duplicate": True, "done": True}
    assert sorted(await numbers(web)) == list(range(20))
    assert staged(web) == [0, 0, 0], "what the tries have staged is gone"
    await reopened(web)
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    assert not staged_rows.is_being_written(topic), "no decision is left"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_other_rows_are_refused_by_number_and_counts_unless_it_is_said_what_to_do(
    web: Web, is_restarted: bool
) -> None:
    await create(web, tablet_count=3)
    await commit(web, await split(web, ROWS, 20, sequence=4), 4)
    if is_restarted:
        await reopened(web)
    for rows in (ROWS[:19], [*ROWS[:19], row(99)], [*ROWS[:19], ROWS[0]], [*ROWS[:19], row(19, 1)], []):
        pieces = await stage(web, *rows, sequence=4) if rows else []
        status, code, told = await web.refusal("POST", f"{STAGED}/commit", body(pieces, 4))
        assert (status, code) == (409, "CHANGED_BATCH")
        expected = f"20 rows were committed as it, now it has {len(rows)}"
        assert f"batch 4 of session 'q' comes again with other rows: {expected}" in told
    less = ROWS[:3]
    assert (await commit(web, await stage(web, *less, sequence=4), 4, on_changed="keep"))["duplicate"]
    assert len(await numbers(web)) == 20
    assert not (await commit(web, await stage(web, *less, sequence=4), 4, on_changed="append"))["duplicate"]
    assert len(await numbers(web)) == 23
    assert (await commit(web, await stage(web, *less, sequence=4), 4))["duplicate"], "these are known now"
    assert len(await numbers(web)) == 23


async def test_an_earlier_number_is_refused_and_a_later_one_begins(web: Web) -> None:
    await create(web)
    await commit(web, await stage(web, row(1), sequence=5), 5)
    pieces = await stage(web, row(2), sequence=4)
    status, code, told = await web.refusal("POST", f"{STAGED}/commit", body(pieces, 4, on_changed="append"))
    assert (status, code) == (409, "SESSION_AHEAD")
    assert "batch 4 of session 'q' comes after batch 5" in told
    assert not (await commit(web, await stage(web, row(2), sequence=6), 6))["duplicate"]
    assert await numbers(web, 1) == [1, 2]


async def test_a_batch_without_rows_is_nothing_and_other_sessions_know_nothing_of_it(web: Web) -> None:
    await create(web)
    assert await commit(web, []) == {"row_count": 0, "duplicate": False, "done": True}
    await commit(web, await stage(web, row(1)))
    assert not (await commit(web, await stage(web, row(1), session="other"), session="other"))["duplicate"]
    assert await numbers(web, 1) == [1, 1]


@pytest.mark.parametrize("kind", ["again", "sequence", "session", "count", "tablet"])
async def test_a_piece_that_is_not_there_for_this_batch_is_refused(web: Web, kind: str) -> None:
    await create(web)
    (piece,) = await stage(web, row(1))
    named = body([piece])
    if kind == "again":
        named["pieces"] *= 2
    elif kind == "sequence":
        named["sequence"] = 1
    elif kind == "session":
        named["session"] = "p"
    elif kind == "count":
        named["pieces"] = [piece["name"].replace(".1.", ".2.", 1)]
    else:
        named["pieces"] = ["7" + piece["name"][1:]]
    status, code, _ = await web.refusal("POST", f"{STAGED}/commit", named)
    assert (status, code) == (409, "STAGE_LOST")
    assert await numbers(web, 1) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pieces": ["0.1"]}, "no name of a piece"), ({"on_changed": "ignore"}, "give fail, keep, append"),
        ({"session": None}, "session"), ({"pieces": ["0.1." + "0" * 32 + "." + "0" * 16] * 20_001}, "at most 20000"),
    ],
)  # fmt: skip
async def test_a_commit_that_cannot_be_is_refused(web: Web, change: dict[str, Any], told: str) -> None:
    await create(web)
    named = {name: value for name, value in {**body([]), **change}.items() if value is not None}
    status, code, message = await web.refusal("POST", f"{STAGED}/commit", named)
    assert (status, told in message) in ((400, True), (413, False)), (code, message)


async def test_rows_that_do_not_fit_or_have_no_session_are_not_staged(web: Web) -> None:
    await create(web)
    given = {"session": "q", "sequence": 0}
    for rows, fields in (([{"nonsense": 1}], given), ([row(1)], {}), ([row(1)], {"session": "q"}), ([], given)):
        status, _, _ = await web.refusal("POST", STAGED, {"rows": rows, **fields})
        assert status == 400
    assert staged(web) == [0]


async def test_arrow_is_staged_too(web: Web) -> None:
    await create(web)
    status, answer = await web.ask(
        "POST", f"{STAGED}?session=q&sequence=0", stream(id=[1, 2]), Content_Type=ARROW_STREAM
    )
    assert status == 200, answer
    assert await commit(web, answer["pieces"]) == {"row_count": 2, "duplicate": False, "done": True}
    assert (await commit(web, await stage(web, row(2), row(1))))["duplicate"], "as JSON they are the same rows"


async def test_a_tablet_holds_so_many_bytes_of_staged_rows(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(staged_bytes_max=100)
    await create(web)
    pieces = await stage(web, row(1))
    given = {"rows": [row(2)], "session": "other", "sequence": 0}
    status, code, told = await web.refusal("POST", STAGED, given)
    assert (status, code) == (503, "STAGE_FULL")
    assert "pqbroker.staged.bytes.max = 100" in told
    await commit(web, pieces)
    assert (await web.ask("POST", STAGED, given))[0] == 200


async def test_a_tablet_holds_so_many_pieces(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_places, "PIECES_MAX", 2)
    await create(web)
    pieces = [*await stage(web, row(1)), *await stage(web, row(2))]
    given = {"rows": [row(3)], "session": "other", "sequence": 0}
    status, code, told = await web.refusal("POST", STAGED, given)
    assert (status, code) == (503, "STAGE_FULL")
    assert "tablet 0 holds 2 pieces" in told
    await commit(web, pieces)
    assert (await web.ask("POST", STAGED, given))[0] == 200


async def test_rows_that_nobody_commits_are_deleted_after_a_day_but_not_those_of_a_decided_batch(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(web, tablet_count=2)
    await stage(web, row(1), hint=0)
    await stage(web, row(2), hint=1)
    monkeypatch.setattr(staged_rows, "STEP_S", -1.0)
    pieces = await stage(web, row(3), session="p", hint=1)
    assert not (await commit(web, pieces, session="p"))["done"]
    owner = web.node.server.node.cell
    held = staged(web)
    await owner.retain()
    assert staged(web) == held
    web.node.clock.now_ms += 86_400_001
    await owner.retain()
    assert staged(web)[0] == 0
    assert 0 < staged(web)[1] < held[1], "the decided rows are there"
    monkeypatch.setattr(staged_rows, "STEP_S", 10.0)
    await owner.retain()
    assert staged(web) == [0, 0]
    assert await numbers(web, 2) == [3], "what was decided is ended without a request"
    assert (await commit(web, await stage(web, row(3), session="p"), session="p"))["duplicate"]


async def test_a_batch_that_takes_long_is_continued_by_the_same_request_or_by_another_split(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(web, tablet_count=3)
    pieces = await split(web, ROWS, 4, 4, 4, 4, 4)
    monkeypatch.setattr(staged_rows, "STEP_S", -1.0)
    assert not (await commit(web, pieces))["done"]
    assert not (await commit(web, pieces))["done"]
    await reopened(web)
    monkeypatch.setattr(staged_rows, "STEP_S", 10.0)
    assert await commit(web, await split(web, ROWS, 20)) == {"row_count": 20, "duplicate": True, "done": True}
    assert sorted(await numbers(web)) == list(range(20))


@pytest.mark.parametrize("verb", ["reshard", "static"])
async def test_a_table_keeps_its_tablets_while_a_batch_is_being_written(
    web: Web, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    await create(web, tablet_count=2)
    monkeypatch.setattr(staged_rows, "STEP_S", -1.0)
    pieces = await stage(web, row(1), hint=1)
    await commit(web, pieces)
    await command(web, "unmount")
    change = {"tablet_count": 1} if verb == "reshard" else {"dynamic": False}
    path = f"/v1/tables/{NAME}/{'reshard' if verb == 'reshard' else 'alter'}"
    status, code, told = await web.refusal("POST", path, change)
    assert (status, code) == (409, "WRONG_STATE")
    assert "a batch of staged rows" in told
    await command(web, "mount")
    monkeypatch.setattr(staged_rows, "STEP_S", 10.0)
    await web.node.server.node.cell.retain()
    await command(web, "unmount")
    assert (await web.ask("POST", path, change))[0] == 200


async def test_pieces_that_a_reshard_leaves_behind_are_staged_again(web: Web) -> None:
    await create(web, tablet_count=2)
    pieces = await stage(web, row(1), hint=1)
    await command(web, "unmount")
    await command(web, "reshard", tablet_count=1)
    await command(web, "mount")
    status, code, _ = await web.refusal("POST", f"{STAGED}/commit", body(pieces))
    assert (status, code) == (409, "STAGE_LOST")
    assert not (await commit(web, await stage(web, row(1))))["duplicate"]


async def test_an_unmounted_tablet_stops_a_batch_which_continues_when_it_is_mounted(web: Web) -> None:
    await create(web, tablet_count=2)
    pieces = [*await stage(web, row(1), hint=0), *await stage(web, row(2), hint=1)]
    await command(web, "freeze", first_tablet_index=1, last_tablet_index=1)
    status, code, _ = await web.refusal("POST", f"{STAGED}/commit", body(pieces))
    assert (status, code) == (409, "WRONG_STATE")
    await command(web, "unfreeze")
    await commit(web, await stage(web, row(2), row(1)))
    assert sorted(await numbers(web, 2)) == [1, 2]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("after", range(9))
async def test_a_store_that_fails_at_any_commit_leaves_each_row_once(web: Web, after: int, stored: bool) -> None:
    """Whatever was decided is ended, in another split too; what was not is staged anew."""
    await create(web, tablet_count=3)
    pieces = await split(web, ROWS, 5, 5, 5, 5)
    owner = web.node.server.node.cell
    before = owner.current
    web.node.engine.faults.lose_next(after=after, stored=stored)
    status, _ = await web.ask("POST", f"{STAGED}/commit", body(pieces))
    if status == 200:
        web.node.engine.faults.clear()
    else:
        await until(lambda: owner.current is not before and NAME in owner.current.topics.names())
    rows = random.Random(after).sample(ROWS, len(ROWS))
    await commit(web, await split(web, rows, 11, 9))
    assert sorted(await numbers(web)) == list(range(20))
    assert staged(web) == [0, 0, 0]


async def test_a_piece_in_a_cell_that_is_not_open_is_not_taken_for_written(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(web, tablet_count=2)
    pieces = [*await stage(web, row(1), hint=0), *await stage(web, row(2), hint=1)]
    monkeypatch.setattr(staged_rows, "STEP_S", -1.0)
    assert not (await commit(web, pieces))["done"]
    monkeypatch.setattr(staged_rows, "STEP_S", 10.0)
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    tablet = topic.tablets[topic.record.tablets[1]]
    storage = tablet.kv.storage
    tablet.await_cell(storage)
    topic.line_up()
    status, code, _ = await web.refusal("POST", f"{STAGED}/commit", body(pieces))
    assert (status, code) == (503, "NOT_LEADER_OR_FOLLOWER")
    assert staged_rows.is_being_written(topic)
    await tablet.start(storage)
    topic.line_up()
    await commit(web, pieces)
    assert await numbers(web, 2) == [1, 2]


@pytest.mark.spec("E.13")
async def test_of_two_commits_at_once_one_writes(web: Web) -> None:
    await create(web, tablet_count=3)
    tries = [await split(web, ROWS, size, 20 - size) for size in (3, 11)]
    both = await asyncio.gather(*(commit(web, pieces) for pieces in tries))
    assert sorted(one["duplicate"] for one in both) == [False, True]
    assert sorted(await numbers(web)) == list(range(20))
