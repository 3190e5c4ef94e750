"""The job `land`: a topic into Parquet, each row once, however often the broker or the job is killed.

Spark's checkpoint fixes which offsets a batch holds, `batches.py` writes them, `lake.py` lets each batch in once.
"""

import threading
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pqbroker.pipeline.admin import Admin
from pqbroker.pipeline.lakes.batches import BatchWriter
from pqbroker.pipeline.lakes.lake import LANDED, Lake
from pqbroker.pipeline.lakes.landing import Landing
from pqbroker.pipeline.lakes.schemas import parse_schema
from pqbroker.pipeline.ownership import owned
from pqbroker.pipeline.progress import Figures, Watch
from pqbroker.pipeline.reports import Reports
from pqbroker.pipeline.streams import Batches, find_topic, run_stream


def land(spark: SparkSession, landing: Landing, say: Callable[[str], None], stopping: threading.Event) -> None:
    """Run until the topic's present end (`once`) or until `stopping` is set; `say` gets a line a batch.

    Raises JobError, LakeError.
    """
    schema = _schema(landing)
    lake = Lake(landing.directory, LANDED)
    with owned(spark, lake.directory), Admin(spark, landing.broker) as admin:
        lake.clear()
        topic_id = find_topic(admin, landing.topic, landing.broker)
        lake.claim(landing.topic, topic_id, is_flat=landing.is_flat)
        writer = BatchWriter(admin, landing, lake, schema, topic_id)
        figures = None if landing.figures is None else Figures("land", landing.figures, landing.topic)
        reports = Reports(admin, landing, figures, writer.counts, say)
        if (last := lake.last()) is not None:
            reports.resume(last.number, {int(number): offset for number, offset in last.until[landing.topic].items()})
        watch = Watch(f"land {landing.topic} to {lake.directory}", landing.topic, reports.batch)
        run_stream(spark, landing, lake.checkpoint, Batches(writer.write_batch, landing), watch, stopping)


def _schema(landing: Landing) -> StructType | None:
    if landing.registry is not None:
        from pqbroker.pipeline.lakes.registry import latest_schema

        return latest_schema(landing.registry, landing.topic)
    return None if landing.schema is None else parse_schema(landing.schema)
