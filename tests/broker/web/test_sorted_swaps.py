"""The one request that puts chunks in the place of what they were made of: nothing of it is left, or all."""

import pytest

from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.kv.commands import Write
from pqbroker.tables.serving.stored_keys import (
    CHUNK_DATA_KEYS,
    CHUNK_KEYS,
    LOG_KEYS,
    PIECE_KEYS,
    chunk_data_key,
    chunk_key,
    piece_key,
)
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import flush, holds, set_attributes, tablet_of
from tests.broker.web.test_sorted_tables import PATH, create, insert, look_up, reopen, row


def stored(web: Web, kind: bytes) -> list[bytes]:
    """Return the keys of a kind that the tablet has."""
    return [key for key, _ in tablet_of(web).kv.keys(kind, kind + b"\xff")]


async def test_after_a_compaction_the_tablet_has_the_keys_of_its_chunks_and_no_others(web: Web) -> None:
    await create(web, attributes={"enable_compaction_and_partitioning": False})
    for number in range(5):
        await insert(web, *(row("a", each, count=number) for each in range(50)))
        await flush(web)
    before = set(tablet_of(web).structure.chunks)
    await set_attributes(web, enable_compaction_and_partitioning=True)
    await holds(web, lambda: len(tablet_of(web).structure.chunks) == 1)
    chunks = list(tablet_of(web).structure.chunks)
    assert not before & {*chunks}
    assert stored(web, CHUNK_KEYS) == [chunk_key(number) for number in chunks]
    assert stored(web, CHUNK_DATA_KEYS) == [chunk_data_key(number) for number in chunks]
    assert stored(web, PIECE_KEYS) == []
    assert stored(web, LOG_KEYS) == []


async def test_a_start_removes_pieces_that_an_earlier_process_has_staged(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1, note="one"))
    await tablet_of(web).kv.execute([Write(piece_key(77, 0), [b"a piece"], 7)])
    await reopen(web)
    assert stored(web, PIECE_KEYS) == []
    assert (await look_up(web, row("a", 1)))[0]["note"] == "one"


async def test_work_of_an_earlier_generation_names_nothing(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1))
    tablet = tablet_of(web)
    kv, store = tablet.kv, tablet.active
    tablet.rotate()
    opened = web.node.server.node.cell.current
    await opened.host.restart(opened.sorted_tables.tables["shop.stock"].record.tablets[0])
    assert tablet.kv is not kv
    with pytest.raises(CommitRefused, match="started again meanwhile"):
        await tablet.name_flushed(kv, store, [], None)
    with pytest.raises(CommitRefused, match="started again meanwhile"):
        await tablet.name_merged(kv, [], [], 0)


async def test_work_of_a_tablet_that_was_unmounted_names_nothing(web: Web) -> None:
    await create(web)
    tablet = tablet_of(web)
    await web.ask("POST", f"{PATH}/unmount", {})
    with pytest.raises(CommitRefused, match="unmounted"):
        await tablet.name_merged(tablet.kv, [], [], 0)


async def test_the_retained_timestamp_never_goes_back(web: Web) -> None:
    await create(web)
    tablet = tablet_of(web)
    await tablet.name_merged(tablet.kv, [], [], 1000)
    await tablet.name_merged(tablet.kv, [], [], 10)
    assert tablet.facts.retained_timestamp == 1000
    await reopen(web)
    assert tablet_of(web).facts.retained_timestamp == 1000
    status, code, _ = await web.refusal("POST", f"{PATH}/lookup", {"keys": [row("a", 1)], "timestamp": 999})
    assert (status, code) == (400, "TIMESTAMP_TOO_OLD")
