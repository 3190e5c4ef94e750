"""What must hold of a node that nobody writes to: every record, every bound, every row and blob of its store."""

import asyncio
from collections.abc import Mapping, Sequence

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.storage.blobs.blob_id import blob_size, tablet_bounds
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.tablet import TabletStorage, TabletType
from tests.pq.rig import check_invariants, read_all
from tests.simulation.compacted_story import COMPACTED
from tests.simulation.ledger import PartitionBook, Value, expect
from tests.simulation.world import World

LOW_WATERMARK_MAX = 8 << 20
"""Heads are measured by the highest watermark that a topic is set to here."""
ROWS_MAX = 100_000


async def verify(world: World, *, is_fresh: bool) -> None:
    """Read everything. Violation when a promise was broken. `is_fresh`: the node was started, so that nothing is left
    to be reclaimed."""
    _verify_unwatched(world)
    for book in world.topics.values():
        group = world.node.group(book.topic_id)
        expect((group is None) == book.gone, f"topic {book.name} should be {'gone' if book.gone else 'there'}")
        if group is None:
            continue
        expect(len(group.partitions) >= book.count, f"{book.name} has {len(group.partitions)} of {book.count}")
        for server in group.partitions:
            await _verify_partition(book.partition(server.index), server)
    for group_id, consumers in world.groups.items():
        await world.node.node.cell.current.topics.offsets.settled(group_id)
        found = world.node.node.cell.current.topics.offsets.of(group_id)
        for place in {**consumers.commits, **found}:
            consumers.found(place, found.get(place))
    if world.sorted_story is not None and world.sorted_story.is_created:
        await world.sorted_story.verify()
        if world.transaction_story is not None:
            await world.transaction_story.verify()
    if world.compacted_story is not None:
        await world.compacted_story.verify()
    if world.producing_story is not None:
        await world.producing_story.verify()
    await verify_store(world, is_fresh=is_fresh)


async def verify_prefix(world: World) -> None:
    """The same for a store that has forgotten: what is there was there before, in one piece."""
    groups = world.node.node.cell.current.topics
    for name in groups.names():
        group = groups.get(name)
        assert group is not None
        if name == COMPACTED:
            continue  # its story knows what is owed, and there is none where a store forgets
        book = world.topics.get(group.record.topic_id)
        for server in group.partitions:
            found = await read_values(server)
            check_invariants(server.state, LOW_WATERMARK_MAX)
            known = PartitionBook(f"{name}-{server.index}") if book is None else book.partition(server.index)
            known.is_prefix(server.start_offset, server.end_offset, found)
    for group_id in groups.offsets.groups():
        for place, state in groups.offsets.of(group_id).items():
            world.groups[group_id].found_earlier(place, state)
    story = world.compacted_story
    if story is not None and story.topic is None:
        expect(not story.book.end, "the topic is gone that was written to")
    elif story is not None:
        await story.verify()
    await verify_store(world, is_fresh=True)


def verify_nothing_left(world: World, timers: Sequence[asyncio.TimerHandle]) -> None:
    """The node has ended and all clients have: nobody watches, nobody is counted, nothing is due."""
    _verify_unwatched(world)
    taken = world.node.node.cell.current.coordinators.taken_bytes
    expect(taken == 0, f"{taken} bytes of groups are counted and nobody holds them")
    expect(not timers, f"timers are left: {timers}")


def _verify_unwatched(world: World) -> None:
    """The clients are done, and so are their parked Fetches."""
    names = world.node.node.cell.current.topics.names()
    watched = [f"{name}-{server.index}" for name in names for server in _servers(world, name) if server.watchers]
    expect(not watched, f"{', '.join(watched)} are still watched")
    expect(not world.parked, f"{world.parked} Fetches are parked still")


def _servers(world: World, name: str) -> Sequence[PartitionServer]:
    topic = world.node.node.cell.current.topics.get(name)
    return topic.partitions if topic is not None else ()


async def _verify_partition(book: PartitionBook, server: PartitionServer) -> None:
    found = await read_values(server)
    check_invariants(server.state, LOW_WATERMARK_MAX)
    book.whole(server.start_offset, server.end_offset, found)


async def read_values(server: PartitionServer) -> list[tuple[int, Value]]:
    return [(offset, Value.of(value)) for offset, value in await read_all(server)]


async def verify_store(world: World, *, is_fresh: bool) -> None:
    """The tablets that are served, and no others, have exactly their rows and blobs, each in its cell."""
    opened = world.node.owner.current
    groups = world.node.node.cell.current.topics
    served: dict[CellId, dict[TabletId, dict[int, PartitionServer]]] = {cell: {} for cell, _ in opened.cells.hosts()}
    for name in groups.names():
        group = groups.get(name)
        for tablet_id, home, _ in group.record.spans() if group is not None else ():
            served[home][tablet_id] = group.tablets[tablet_id].partitions  # type: ignore[union-attr]
    copies = world.has_cells or world.has_table
    dead = {tablet for tombstone in opened.scheme.tombstones.values() for tablet in tombstone.tablets}
    expect(not (is_fresh and dead), f"the deleted tablets {dead} are still there")
    for cell, host in opened.cells.hosts():
        hosted = {one.tablet_id for one in host.cell.tablets().values() if one.type is TabletType.PERSQUEUE} - dead
        extra = hosted - served[cell].keys()
        expect(served[cell].keys() <= hosted, f"cell {cell} lacks {served[cell].keys() - hosted}")
        expect(not (extra and (is_fresh or not copies)), f"cell {cell} has {extra}, which nobody serves")
        for served_id, partitions in served[cell].items():
            await _verify_tablet(host.cell.storage(served_id), partitions)


async def _verify_tablet(storage: TabletStorage, partitions: Mapping[int, PartitionServer]) -> None:
    tablet_id = storage.tablet_id
    rows = {key: Entry.stored(row) for key, row in await storage.scan(b"", None, ROWS_MAX)}
    named = {blob for entry in rows.values() for blob in entry.blobs()}
    stored = {blob: size async for blob, size in storage.stored_blobs(*map(BlobKey, tablet_bounds(tablet_id)))}
    expect(named == stored.keys(), f"tablet {tablet_id}: rows and blobs differ by {named ^ stored.keys()}")
    expect(all(blob_size(blob) == size for blob, size in stored.items()), f"a blob of {tablet_id} is cut")
    data = {key: entry.size for key, entry in rows.items() if key.startswith(b"d")}
    known = {key: size for server in partitions.values() for key, size in _blobs_of(server).items()}
    expect(data == known, f"tablet {tablet_id} stores {data.keys() ^ known.keys()} besides what it knows")


def _blobs_of(server: PartitionServer) -> dict[bytes, int]:
    bodies, head = server.state.bodies, server.state.head
    found = {bodies.key(server.index, number): bodies.sizes[number] for number in range(len(bodies))}
    return found | {blob.key(server.index): blob.size for blob in head.blobs}
