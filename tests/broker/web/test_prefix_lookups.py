"""Lookups of sorted tables by the first columns of their keys: of memory and chunks, in order, at a timestamp."""

import random
from typing import Any

import pytest

from pqbroker.storage.engine import BlobMissing
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.tables.serving import lookups, stored_inputs
from pqbroker.tables.serving.open_chunk import OpenChunk
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import flush, holds, set_attributes, tablet_of
from tests.broker.web.test_sorted_tables import PATH, create, insert, row
from tests.support.depth import examples


async def found(web: Web, prefix: Any, **more: Any) -> Any:
    status, answer = await web.ask("POST", f"{PATH}/lookup", {"prefix": prefix, **more})
    assert status == 200, answer
    return answer["rows"]


async def test_rows_of_a_prefix_come_in_order_over_tablets_chunks_and_memory(web: Web) -> None:
    await create(web, pivot_keys=[[], ["b", 5], ["c"]])
    await insert(web, *(row(shop, number, count=1) for shop in ("a", "b", "c") for number in range(10)))
    await flush(web)
    at = await insert(web, row("b", 3, note="x"), row("b", -1), update=True)
    await web.ask("DELETE", f"{PATH}/rows", {"keys": [row("b", 7)]})
    expected = [row("b", number, note=None, count=1) for number in range(10) if number != 7]
    expected[3]["note"] = "x"
    assert await found(web, {"shop": "b"}) == [row("b", -1, note=None, count=None), *expected]
    assert [one["id"] for one in await found(web, {"shop": "b"}, timestamp=at)] == list(range(-1, 10))
    assert await found(web, {"shop": "b"}, timestamp=at - 1, columns=["id"]) == [{"id": each} for each in range(10)]
    assert await found(web, {"shop": "b", "id": 3}, columns=["note"]) == [{"note": "x"}]
    assert await found(web, {"shop": "bb"}) == []
    assert len(await found(web, {})) == 30


async def test_a_null_is_a_value_of_a_prefix_and_zeros_end_none(web: Web) -> None:
    await create(web)
    shops = (None, "", "\0", "a", "a\0", "ab")
    await insert(web, *({"shop": shop, "id": 1} for shop in shops))
    for shop in shops:
        assert [one["shop"] for one in await found(web, {"shop": shop})] == [shop]


@pytest.mark.parametrize("seed", range(examples(4, least=2)))
async def test_prefixes_find_what_a_naive_model_has_at_every_timestamp(web: Web, seed: int) -> None:
    dice = random.Random(seed)
    await create(web, pivot_keys=[[], ["b"]])
    model: dict[tuple[str, int], Any] = {}
    moments: list[tuple[int, dict[tuple[str, int], Any]]] = []
    for step in range(60):
        keys = {(dice.choice("abc"), dice.randrange(6)) for _ in range(dice.randrange(1, 8))}
        web.node.clock.now_ms += 10
        if dice.random() < 0.25:
            _, done = await web.ask("DELETE", f"{PATH}/rows", {"keys": [row(*key) for key in keys]})
            at = done["timestamp"]
            model = {key: values for key, values in model.items() if key not in keys}
        else:
            is_update = dice.random() < 0.5
            at = await insert(web, *(row(*key, count=step) for key in keys), update=is_update)
            note = {key: model.get(key, {}).get("note") if is_update else None for key in keys}
            model = {**model, **{key: {"note": note[key], "count": step} for key in keys}}
        moments.append((at, model))
        if dice.random() < 0.15:
            await flush(web)
    await set_attributes(web, forced_compaction_revision=1)
    for at, then in dice.sample(moments, 20):
        shop = dice.choice("abcd")
        expected = [row(*key, **values) for key, values in sorted(then.items()) if key[0] == shop]
        assert await found(web, {"shop": shop}, timestamp=at) == expected


async def test_a_prefix_of_too_many_rows_is_refused_by_its_limit(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web, pivot_keys=[[], ["b"]])
    monkeypatch.setattr(lookups, "FOUND_KEYS_MAX", 20)
    await insert(web, *(row("a", number) for number in range(20)), *(row("b", number) for number in range(21)))
    for _ in range(2):
        assert len(await found(web, {"shop": "a"})) == 20
        refused = await web.refusal("POST", f"{PATH}/lookup", {"prefix": {"shop": "b"}})
        assert refused[:2] == (413, "TOO_MANY_ROWS")
        assert "more than 20 keys" in refused[2]
        await flush(web)
    monkeypatch.setattr(lookups, "READ_BYTES_MAX", 100)
    refused = await web.refusal("POST", f"{PATH}/lookup", {"prefix": {"shop": "a"}})
    assert refused[1] == "TOO_MANY_ROWS"
    assert "more than 100 bytes" in refused[2]
    assert tablet_of(web).share.reads.bound(1 << 63) == 1 << 63


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        ({}, "INVALID_REQUEST", "one of keys and prefix"),
        ({"keys": [], "prefix": {}}, "INVALID_REQUEST", "one of keys and prefix"),
        ({"prefix": {"id": 1}}, "INVALID_ROW", "prefix has no shop, which comes before"),
        ({"prefix": {"shop": 1}}, "INVALID_ROW", "prefix.shop is no utf8"),
        ({"prefix": {"shop": "a", "note": 1}}, "INVALID_ROW", "'note', which is no part of the key"),
        ({"prefix": {"shop": "a"}, "columns": ["nota"]}, "NO_COLUMN", "'nota'"),
    ],
)
async def test_what_is_no_prefix_is_refused_by_field(web: Web, body: Any, code: str, part: str) -> None:
    await create(web)
    status, found_code, message = await web.refusal("POST", f"{PATH}/lookup", body)
    assert (status, found_code) == (400, code), message
    assert part in message


async def test_a_lookup_beside_compaction_is_tried_again(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web, attributes={"min_data_ttl": 0})
    await insert(web, *(row("a", number, count=1) for number in range(50)))
    await flush(web)
    web.node.clock.now_ms += 10
    tablet = tablet_of(web)
    (before,) = tablet.structure.chunks
    read_index = lookups.Lookup._index
    tries = 0

    async def compacted(self: Any, chunk: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            tablet.share.kept.forget([chunk])
            await set_attributes(web, forced_compaction_revision=1)
            await holds(web, lambda: before not in tablet.structure.chunks)
        return await read_index(self, chunk)

    monkeypatch.setattr(lookups.Lookup, "_index", compacted)
    assert len(await found(web, {"shop": "a"})) == 50
    assert tries == 2


SOUGHT = {"key": {"keys": [{"shop": "a", "id": 7}]}, "prefix": {"prefix": {"shop": "a"}}}


@pytest.mark.parametrize("sought", SOUGHT.values(), ids=SOUGHT)
async def test_a_blob_that_is_missing_before_its_chunk_shows_as_gone_is_no_damage(
    web: Web, monkeypatch: pytest.MonkeyPatch, sought: Any
) -> None:
    await create(web)
    await insert(web, row("a", 7, count=1))
    await flush(web)
    tablet, (before,), read = tablet_of(web), tablet_of(web).structure.chunks, OpenChunk._read

    async def gone(self: OpenChunk, kv: KeyValueTablet, position: int, size: int) -> bytes:
        if self.number == before:
            raise BlobMissing("its chunk is being replaced")
        return await read(self, kv, position, size)

    async def shown(kv: KeyValueTablet) -> None:
        await set_attributes(web, forced_compaction_revision=1)
        await holds(web, lambda: before not in tablet.structure.chunks)

    monkeypatch.setattr(OpenChunk, "_read", gone)
    monkeypatch.setattr(lookups, "see_deletions", shown)
    status, answer = await web.ask("POST", f"{PATH}/lookup", sought)
    assert (status, [one["count"] for one in answer["rows"]]) == (200, [1])


async def test_a_query_takes_a_blob_that_is_missing_before_its_chunk_shows_as_gone_for_no_damage(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(web)
    await insert(web, row("a", 7, count=1))
    await flush(web)
    tablet, (before,), locate = tablet_of(web), tablet_of(web).structure.chunks, stored_inputs._located

    async def gone(kv: KeyValueTablet, inputs: Any, chunks: int) -> Any:
        if before in tablet.structure.chunks:
            raise BlobMissing("its chunk is being replaced")
        return await locate(kv, inputs, chunks)

    async def shown(kv: KeyValueTablet) -> None:
        await set_attributes(web, forced_compaction_revision=1)
        await holds(web, lambda: before not in tablet.structure.chunks)

    monkeypatch.setattr(stored_inputs, "_located", gone)
    monkeypatch.setattr(stored_inputs, "see_deletions", shown)
    located = await stored_inputs.locate_inputs(tablet, tablet.visible, [(b"", None)])
    assert located.chunks == 1
    assert before not in tablet.structure.chunks
