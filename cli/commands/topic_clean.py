"""`pqbroker topic clean`: have a compacted topic cleaned, and see what became of it."""

import time
from typing import Annotated, Any
from urllib.parse import quote

from pqbroker.cli.command import Family, declare
from pqbroker.cli.notices import announce_wait
from pqbroker.cli.options import INT32_MAX, Http, Json, TopicName
from pqbroker.cli.output import say, show_bytes, show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import CommandError
from pqbroker.cli.web import DEFAULT_HTTP, Web

WAIT_LOOK_S = 0.2
CLEANED_WITHIN_S = 3600
"""Seconds that --wait lasts unless --timeout says otherwise."""
BUSY = frozenset(("cleaning", "due"))
"""States of a partition that a pass goes over, or will at one of the next looks."""
_CURES = {
    "INVALID_REQUEST": "`pqbroker topic configs` shows and sets the policy, `pqbroker cluster settings` the cleaner.",
}


def add_clean(app: Family) -> None:
    """Declare the command."""
    declare(app, "clean", "pqbroker topic clean users --wait")(clean)


def clean(
    topic: TopicName,
    partition: Annotated[
        list[int] | None, option(least=0, metavar="NUMBER", help="Partition to clean; repeatable; without it: all.")
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", help="Clean nothing: show what a pass would go through.")
    ] = False,
    wait: Annotated[bool, option("--wait", help="Wait until it is done, and show the results.")] = False,
    timeout: Annotated[
        int,
        option("--timeout", metavar="SECONDS", least=1, most=INT32_MAX // 1000, help="Time that --wait may take."),
    ] = CLEANED_WITHIN_S,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Have a compacted topic cleaned soon: of each key the last record stays. Without the command the broker does it
    when enough was written (min.cleanable.dirty.ratio)."""
    path = f"/v1/topics/{quote(topic, safe='')}"
    body: dict[str, Any] = {"dry_run": dry_run, **({} if partition is None else {"partitions": partition})}
    with Web(http, cures=_CURES) as web:
        asked = web.post(f"{path}/clean", body, "partitions")["partitions"]
        begun = [one["partition"] for one in asked if one["is_cleaned"] and not dry_run]
        done = _wait(web, path, begun, timeout) if wait else []
    if json:
        show_json({"topic": topic, "dry_run": dry_run, "partitions": asked, **({"passes": done} if done else {})})
        return
    columns = ("partition", "cleaned", "bodies", "bytes", "dirty", "head", "")
    show_table(columns, map(_row, asked))
    if done:
        say("")
        columns = ("partition", "records", "gone", "tombstones gone", "bytes freed", "seconds", "failure")
        show_table(columns, map(_done_row, done))
        if failed := [one for one in done if one["failure"]]:
            raise CommandError(f"{len(failed)} of {len(done)} passes failed; GET /v1/cleaner says more")


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    is_cleaned = "yes" if one["is_cleaned"] else "no"
    return (
        one["partition"], is_cleaned, one["bodies"], show_bytes(one["size_bytes"]), f"{one['dirty_ratio']:.0%}",
        show_bytes(one["head_bytes"]), one["text"],
    )  # fmt: skip


def _done_row(one: dict[str, Any]) -> tuple[object, ...]:
    seconds = (one["ended_ms"] - one["begun_ms"]) / 1000
    return (
        one["partition"], one["records"], one["records_gone"], one["tombstones_gone"], show_bytes(one["bytes_freed"]),
        f"{seconds:.1f}", one["failure"],
    )  # fmt: skip


def _wait(web: Web, path: str, partitions: list[int], timeout_s: float) -> list[dict[str, Any]]:
    """Return the pass that ended last over each partition, once none is under way or due. CommandError at the end of
    the time, with the partitions that are left."""
    deadline, done = time.monotonic() + timeout_s, []
    with announce_wait(f"waiting for the cleaner to go over {len(partitions)} partitions", timeout_s):
        for place, partition in enumerate(partitions):
            found = _settled(web, f"{path}/partitions/{partition}", deadline)
            if found["state"] in BUSY:
                raise CommandError(_unfinished(partitions[place:], timeout_s))
            if found["last"] is not None:
                done.append(found["last"])
    return done


def _settled(web: Web, partition: str, deadline: float) -> dict[str, Any]:
    """Return how a partition is cleaned once no pass is under way or due, or at the deadline."""
    while True:
        found: dict[str, Any] = web.get(partition, "cleaning", limit=1)["cleaning"]
        if found["state"] not in BUSY or time.monotonic() >= deadline:
            return found
        time.sleep(WAIT_LOOK_S)


def _unfinished(partitions: list[int], timeout_s: float) -> str:
    left = ", ".join(map(str, partitions))
    waited = f"after {timeout_s:g} s partitions are not cleaned yet: {left}"
    return f"{waited}; the broker continues, and `pqbroker top` shows its passes"
