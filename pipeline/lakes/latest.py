"""The latest row of each key, from rows as `rows.py` makes them; a null value deletes its key.

Within a partition the later offset is the later record. A key whose records lie in several partitions, as after
partitions were added, has the record of the later timestamp.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, lit, max_by, struct

from pqbroker.pipeline.lakes.landing import KEPT

_RECORDS = "records"


def latest(rows: DataFrame) -> DataFrame:
    """A row for each key and partition, with how many records it stands for. Rows without a key are one of them."""
    row = struct(*KEPT, "value")
    found = rows.groupBy("key", "partition").agg(max_by(row, "offset").alias("row"), count(lit(1)).alias(_RECORDS))
    return found.select("row.*", _RECORDS)


def keyless(found: DataFrame) -> int:
    """Return how many records without a key are among the latest rows."""
    return sum(row[_RECORDS] for row in found.where("key IS NULL").select(_RECORDS).collect())


def changed(table: DataFrame | None, found: DataFrame) -> DataFrame:
    """The table after its latest rows."""
    rows = found.where("key IS NOT NULL").drop(_RECORDS)
    if table is not None:
        rows = latest(table.unionByName(rows)).drop(_RECORDS)
    row = struct(*KEPT, "value")
    one = rows.groupBy("key").agg(max_by(row, struct("timestamp", "partition")).alias("row"))
    return one.select("row.*").where(col("value").isNotNull())
