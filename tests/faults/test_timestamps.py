"""Commit timestamps of a real broker: 240 commits at once over tablets of two cells, kill -9 in between, and a restored
backup."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.testing import Broker, broker

TABLET_COUNT = 4
COMMITS = 240
ROWS = "/v1/tables/t/rows"
TABLE = {
    "path": "//t", "tablet_count": TABLET_COUNT, "bundle": "b",
    "schema": [{"name": "id", "type": "int64"}, {"name": "$timestamp", "type": "uint64"}],
}  # fmt: skip


def commit_all(calls: HttpCalls, first: int) -> None:
    def commit(number: int) -> Any:
        return calls.ask("POST", ROWS, {"rows": [{"id": number, "$tablet_index": number % TABLET_COUNT}]})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(commit, range(first, first + COMMITS)))


def stamps(calls: HttpCalls) -> list[list[tuple[int, int]]]:
    """Timestamp and id of the rows, by tablet."""
    found = [calls.ask("GET", f"{ROWS}?tablet_index={index}&limit=1000")["rows"] for index in range(TABLET_COUNT)]
    return [[(row["$timestamp"], row["id"]) for row in rows] for rows in found]


def all_of(found: list[list[tuple[int, int]]]) -> list[int]:
    """Every timestamp; they rise with the row index in each tablet, and none comes twice."""
    assert all(some == sorted(some) for some in found)
    every = [stamp for some in found for stamp, _ in some]
    assert len(set(every)) == len(every)
    return every


def commit_more(node: Broker, greatest: int, first: int) -> int:
    """The greatest timestamp of commits that all have greater ones than `greatest`."""
    calls = HttpCalls(lambda: node.http)
    commit_all(calls, first)
    found = stamps(calls)
    all_of(found)
    new = [stamp for some in found for stamp, number in some if number >= first]
    assert len(new) == COMMITS
    assert min(new) > greatest
    return max(new)


def test_240_commits_have_240_timestamps_that_rise_over_kills_and_a_restored_backup(tmp_path: Path) -> None:
    data, new = tmp_path / "data", tmp_path / "new"
    with broker(data) as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/bundles", {"name": "b"})
        for _ in range(2):
            calls.ask("POST", "/v1/cells", {"bundle": "b"})
        calls.ask("POST", "/v1/tables", TABLE)
        greatest = commit_more(node, 0, 0)
        node.kill()
        node.start()
        greatest = in_backup = commit_more(node, greatest, 1000)
        made = Path(calls.ask("POST", "/v1/backups", {"name": "one"})["directory"])
        node.kill()
        node.start()
        commit_more(node, greatest, 2000)
    assert not examine_directory(data, {}).damages
    restore(made, new, {}, lambda size: None)
    with broker(new) as node:
        commit_more(node, in_backup, 3000)
    found = examine_directory(new, {})
    assert not found.found, found.found
