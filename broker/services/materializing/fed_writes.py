"""Rows of a feed written to the tablets of its table, with the progress of the feed: one commit, at the node that runs
the first tablet, which keeps the progress."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.tables.inserting import check_participants
from pqbroker.conf.broker import BrokerSettings
from pqbroker.tables.serving.feed_progress import FeedMove
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.writes import MovedApart, write
from pqbroker.tables.sorted.log_entries import NewRow


async def write_fed(
    commits: Commits, settings: BrokerSettings, table: SortedTable, by_tablet: Mapping[int, Sequence[NewRow]],
    move: FeedMove,
) -> None:  # fmt: skip
    """Write rows and progress as one commit. TableError, CommitRefused, ShardLost, KafkaError."""
    parts = sorted({0: (), **by_tablet}.items())
    if len({table.record.cell_of(index) for index, _ in parts}) == 1:
        with suppress(MovedApart):
            await write([(table.tablets[index].writes, rows) for index, rows in parts], move)
            return
    check_participants(settings, len(parts))
    (_, first), *others = parts
    apart = [table.part(0, first, None, move), *(table.part(index, rows, None) for index, rows in others)]
    await commits.write(apart, is_first_home=True)
