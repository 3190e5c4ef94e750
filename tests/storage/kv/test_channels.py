"""Where a KV tablet's values go: MAIN, EXTRA, INLINE, and what is known of these places."""

import pytest

from pqbroker.storage.blobs.blob_id import BlobId, tablet_bounds
from pqbroker.storage.blobs.blob_storage import BlobStorage
from pqbroker.storage.blobs.channel_history import ChannelHistory
from pqbroker.storage.engine import Shard
from pqbroker.storage.kv.commands import EXTRA_MAX, INLINE, INLINE_BYTES_MAX, MAIN, KeyValueError, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.tablets.tablet import TabletRecord, TabletStorage, TabletType
from tests.storage.kv_bench import BLOB, TABLET, Bench


def tablet(shard: Shard, *groups: int) -> KeyValueTablet:
    """A KV tablet whose channels write to these groups."""
    channels = tuple(ChannelHistory(((1, group),)) for group in groups)
    record = TabletRecord(TABLET, TabletType.PERSQUEUE, 1, channels, "owner")
    storage = TabletStorage(shard, BlobStorage(shard, shard.pools), record)
    return KeyValueTablet(storage, inline_bytes_max=8, clock=lambda: 0)


@pytest.mark.spec("B.1")
async def test_the_inline_channel_keeps_a_large_value_in_the_row(bench: Bench) -> None:
    await bench.run(Write(b"k", [BLOB], len(BLOB), INLINE))
    assert await bench.blobs() == []
    with pytest.raises(KeyValueError, match="inline"):
        await bench.run(Write(b"k", [bytes(INLINE_BYTES_MAX + 1)], INLINE_BYTES_MAX + 1, INLINE))


@pytest.mark.spec("B.1")
async def test_a_channel_the_tablet_does_not_have_means_main(bench: Bench) -> None:
    await bench.run(Write(b"k", [BLOB], len(BLOB), channel=9))
    assert [blob.channel for blob in await bench.blobs()] == [2]


@pytest.mark.spec("B.1")
async def test_the_extra_channels_of_a_tablet_follow_its_main_one() -> None:
    kv = tablet(await MemoryEngine(1 << 20).open(), 0, 0, 0, 0, 0)
    await kv.execute([Write(b"%d" % channel, [BLOB], len(BLOB), channel) for channel in range(EXTRA_MAX + 1)])
    stored = [BlobId.from_key(blob) async for blob, _ in kv.storage.stored_blobs(*tablet_bounds(TABLET))]
    assert sorted(blob.channel for blob in stored) == [2] * 8 + [3, 4]
    assert [entry.channel for _, entry in kv.keys()] == [0, 1, 2] + [0] * 7


@pytest.mark.spec("B.1")
async def test_a_value_goes_to_the_first_of_the_channels_to_select_from_that_has_the_most_room() -> None:
    engine = MemoryEngine(1 << 20, pools=("main", "extra"))
    kv = tablet(await engine.open(), 0, 0, 0, 1, 0)
    coloured = [
        ((Colour.GREEN, Colour.GREEN), 1),
        ((Colour.GREEN, Colour.LIGHT_YELLOW_MOVE), 2),
        ((Colour.LIGHT_YELLOW_MOVE, Colour.YELLOW_STOP), 2),
        ((Colour.YELLOW_STOP, Colour.LIGHT_YELLOW_MOVE), 1),
        ((Colour.YELLOW_STOP, Colour.YELLOW_STOP), 1),
    ]
    for (main, extra), selected in coloured:
        engine.tell_colour(main, "main")
        engine.tell_colour(extra, "extra")
        await kv.execute([Write(b"k", [BLOB], len(BLOB), channel=INLINE, autoselect=(1, 2))])
        entry = kv.entry(b"k")
        assert entry is not None
        assert entry.channel == selected, (main, extra)
    with pytest.raises(KeyValueError, match="no channel 65535"):
        await kv.execute([Write(b"k", [BLOB], len(BLOB), autoselect=(1, INLINE))])


@pytest.mark.spec("B.1")
async def test_a_channel_has_the_colour_of_the_place_its_values_go_to() -> None:
    engine = MemoryEngine(1 << 20, pools=("main", "extra"))
    kv = tablet(await engine.open(), 0, 0, 0, 1)
    engine.tell_colour(Colour.YELLOW_STOP, "extra")
    assert [kv.status(channel) for channel in (MAIN, 1, 2)] == [Colour.GREEN, Colour.YELLOW_STOP, Colour.GREEN]
    with pytest.raises(KeyValueError, match="no channel 10"):
        kv.status(EXTRA_MAX + 1)
