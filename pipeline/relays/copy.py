"""The jobs `copy` and `redrive`: records of a topic into another topic or broker, each once."""

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ownership import owned
from pqbroker.pipeline.progress import Counts, Figures, Watch
from pqbroker.pipeline.relays.copying import Copying
from pqbroker.pipeline.relays.journal import Journal
from pqbroker.pipeline.relays.once import OnceWriter
from pqbroker.pipeline.relays.rows import copied, redriven
from pqbroker.pipeline.relays.sending import Sender
from pqbroker.pipeline.reports import Reports
from pqbroker.pipeline.streams import Batches, find_topic, run_stream


def copy(spark: SparkSession, copying: Copying, say: Callable[[str], None], stopping: threading.Event) -> None:
    """Run until the topic's present end (`once`) or until `stopping` is set; `say` gets a line a batch. JobError."""
    journal = Journal(copying.state)
    with (
        owned(spark, journal.directory),
        Admin(spark, copying.broker) as admin,
        Admin(spark, copying.target_broker) as target_admin,
    ):
        relay = _relay(admin, target_admin, journal, copying)
        figures = None if copying.figures is None else Figures(copying.job, copying.figures, copying.topic)
        reports = Reports(admin, copying, figures, lambda number: Counts(), say)
        watch = Watch(f"{copying.job} {copying.topic} by {journal.directory}", copying.topic, reports.batch)
        run_stream(spark, copying, journal.checkpoint, Batches(relay, copying), watch, stopping)


def _relay(
    admin: Admin, target_admin: Admin, journal: Journal, copying: Copying
) -> Callable[[DataFrame, int], None]:
    """Make the target where it is missing, as wide as the source; return the writer of a batch of records."""
    source_id = find_topic(admin, copying.topic, copying.broker)
    try:
        count = admin.partition_count(copying.topic)
        target_admin.ensure_topic(copying.target, admin.batch_bytes_max(copying.topic), count)
        target_count = target_admin.partition_count(copying.target)
        target_id = str(target_admin.topic_id(copying.target))
    except AdminError as error:
        raise JobError(f"the broker at {copying.broker} or {copying.target_broker}: {error}") from error
    if source_id == target_id:
        raise JobError(f"topic {copying.topic} would be copied into itself; name another topic")
    facts = {"topic": copying.topic, "topic id": source_id, "target": copying.target, "target id": target_id}
    sender = Sender(copying.target_broker, copying.target, target_count, journal.lock, copying.records_per_s)
    writer = OnceWriter(target_admin, journal, journal.claim({"job of": copying.job, **facts}), sender)

    def write(records: DataFrame, number: int) -> None:
        rows = redriven(records) if copying.are_letters else copied(records, same_partitions=count == target_count)
        writer.write(rows if copying.records_per_s is None else rows.coalesce(1), number)

    return write
