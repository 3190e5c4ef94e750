"""The content of bodies in the node's cache, from the side that writes: kept when a head becomes a body, dropped when a
body is deleted or replaced."""

from collections.abc import Iterable

from pqbroker.pq.log.batch_run import Run
from pqbroker.pq.log.body import BODY_PAGE_BYTES, Bodies
from pqbroker.pq.log.write_cycle import ClosedBody, ReplacedBodies
from pqbroker.pq.reading.cache import INDEX_PAGE, BlobCache


def keep_body(cache: BlobCache, number: int, body: ClosedBody, run: Run, now_s: float) -> None:
    """A closed head's content becomes cached pages of its body. `number`: the partition's in the cache."""
    if body.start < run.base:
        return
    index = body.index
    cache.put((number, body.offset, INDEX_PAGE, 0), index, now_s)
    for page in range(len(index.pages)):
        first, last = index.page_entries(page)
        position, size, _ = index.span(first, last)
        start = body.start + position
        cache.put((number, body.offset, page, 0), index.run(run.slices(start, start + size), first, last), now_s)


def forget_bodies(cache: BlobCache, number: int, bodies: Bodies, count: int) -> None:
    """The oldest `count` bodies of a partition go."""
    for body in range(count):
        cache.forget(number, bodies.name(body), bodies.sizes[body] // BODY_PAGE_BYTES + 1)


def forget_replaced(cache: BlobCache, number: int, bodies: Bodies, replaced: Iterable[ReplacedBodies]) -> None:
    """Some bodies of a partition are about to be replaced."""
    for name in (name for each in replaced for name in each.names):
        body = bodies.number_of(name)
        if body is not None:
            cache.forget(number, name, bodies.sizes[body] // BODY_PAGE_BYTES + 1)
