"""A Spark of other cores copies what a stream of a table has now: other_cores HTTP TABLE COPY CHECKPOINT MASTER."""

import sys

from pqbroker.pipeline.session import start_session
from tests.spark.kills.victim import OPTIONS
from tests.spark.topics import finish


def main() -> None:
    """Copy with as many tasks as there are cores."""
    http, table, copy, checkpoint, master = sys.argv[1:]
    spark = start_session("other cores", master=master, options=OPTIONS)
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.format("ordered_table").options(http=http).load(table).select("n", "text")
    split = rows.repartition(spark.sparkContext.defaultParallelism)
    sink = split.writeStream.format("ordered_table").options(http=http, checkpointLocation=checkpoint)
    finish(sink.trigger(availableNow=True).start(copy))
    spark.stop()


if __name__ == "__main__":
    main()
