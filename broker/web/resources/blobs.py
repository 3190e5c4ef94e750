"""Blobs that are stored of a tablet, by id: tablet, generation, step, channel, cookie, size, part."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.resources.tablets import cell_of, find_tablet, node_with
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, nullable, object_of
from pqbroker.storage.blobs.blob_id import BlobId, tablet_bounds
from pqbroker.storage.blobs.blob_storage import following
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.tablets.tablet import TabletRecord

_BLOB = object_of({"id": TEXT, "channel": COUNT, "generation": COUNT, "size_bytes": COUNT, "pool": nullable(TEXT)})


async def list_blobs(call: Call) -> Any:
    record = find_tablet(call, call.query["tablet"])
    cell = cell_of(call, record.tablet_id)
    lo, hi = tablet_bounds(record.tablet_id)
    if (after := call.query.get("after")) is not None:
        lo = following(_parse(after, record).key())
    page, has_more = call.page(await cell.inspection.stored_blobs(lo, hi, call.limit() + 1))
    shown = await asyncio.to_thread(_show, page, await cell.inspection.places(page))
    return {"tablet": record.tablet_id, "blobs": shown, "next": shown[-1]["id"] if has_more else None}


def _parse(text: str, record: TabletRecord) -> BlobId:
    try:
        blob = BlobId.parse(text)
    except ValueError as error:
        raise bad_request(f"after: {error}") from None
    if blob.tablet != record.tablet_id:
        raise bad_request(f"after names a blob of tablet {blob.tablet}, not of tablet {record.tablet_id}")
    return blob


def _show(page: Sequence[BlobKey], places: Sequence[str | None]) -> list[dict[str, Any]]:
    """Runs in a thread."""
    return [
        {
            "id": str(blob),
            "channel": blob.channel,
            "generation": blob.generation,
            "size_bytes": blob.size,
            "pool": place,
        }
        for blob, place in zip(map(BlobId.from_key, page), places, strict=True)
    ]


ROUTES = (
    Route(
        "GET", "/v1/blobs", "List the stored blobs of a tablet", list_blobs,
        object_of({"tablet": COUNT, "blobs": array_of(_BLOB), "next": nullable(TEXT)}),
        (
            Parameter("tablet", COUNT, "Whose blobs.", required=True),
            Parameter("after", TEXT, "List those behind this id: `next` of the answer before."),
            LIMIT,
        ),
        cluster=AclOperation.DESCRIBE, place=node_with,
    ),
)  # fmt: skip
