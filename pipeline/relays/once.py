"""Writing batches of rows into a topic so that it has each row once, whichever process is killed.

Before a batch is written the journal has where the target ends. A batch that was begun and is not known to be done is
looked for in the target from there on, by the headers its records carry, and what is missing is written: where the
target is compacted, only what no later row of its key has made needless. Before that, every process that wrote for the
job has ended, and what it had sent has arrived.
"""

import json
import time

from pyspark.sql import DataFrame

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.causes import FAILURES, innermost
from pqbroker.pipeline.connection_security import spark_options
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.relays.journal import Begun, Journal, held
from pqbroker.pipeline.relays.rows import FROM, marked, marks, without_superseded
from pqbroker.pipeline.relays.sending import Sender

_ATTEMPTS = 5
_SETTLE_S = 2.0
"""Seconds for which bytes of a killed process may still be on their way to the broker, which then commits them."""


class OnceWriter:
    """Writes the batches of a job, in the order of their numbers."""

    def __init__(self, admin: Admin, journal: Journal, job: str, sender: Sender) -> None:
        """`admin` is of the target's broker, `job` the id that the records carry."""
        self._admin = admin
        self._journal = journal
        self._job = job
        self._sender = sender

    def write(self, rows: DataFrame, number: int) -> None:
        """Write a batch, or what is missing of it. The same number means the same rows. JobError."""
        last = self._journal.last()
        if last is not None and (last.number > number or (last.number == number and last.is_done)):
            return
        try:
            begun = last if last is not None and last.number == number else self._begin(number)
            self._write_missing(rows, begun, is_fresh=begun is not last)
        except AdminError as error:
            raise JobError(f"the broker at {self._sender.broker}: {error}") from error
        self._journal.note(Begun(number, begun.ends, is_done=True))

    def _begin(self, number: int) -> Begun:
        begun = Begun(number, self._admin.ends(self._sender.topic))
        self._journal.note(begun)
        return begun

    def _write_missing(self, rows: DataFrame, begun: Begun, *, is_fresh: bool) -> None:
        for attempt in range(_ATTEMPTS):
            left = rows if is_fresh and attempt == 0 else self._missing(rows, begun)
            try:
                marked(left, self._job).foreachPartition(self._sender)
                return
            except FAILURES as error:
                failed = error
        raise JobError(f"topic {self._sender.topic} at {self._sender.broker}: {innermost(failed)}") from None

    def _missing(self, rows: DataFrame, begun: Begun) -> DataFrame:
        """The rows that are not in the target, each partition's in one task and in order, as Spark reads them first."""
        topic = self._sender.topic
        with held(self._journal.lock, alone=True):
            time.sleep(_SETTLE_S)
            ends = self._admin.ends(topic)
        source = {
            "kafka.bootstrap.servers": self._sender.broker,
            "subscribe": topic,
            "includeHeaders": "true",
            "startingOffsets": json.dumps({topic: {number: begun.ends.get(number, 0) for number in ends}}),
            "endingOffsets": json.dumps({topic: ends}),
            **spark_options(),
            "failOnDataLoss": "false",  # below the log's start nothing can be found, nor is it there twice
        }
        written = rows.sparkSession.read.format("kafka").options(**source).load()
        found = marks(written, self._job)
        left = rows.join(found, list(FROM), "left_anti")
        if self._admin.is_compacted(topic):
            left = without_superseded(left, rows.join(found, list(FROM), "left_semi"))
        return left.repartition(FROM[0]).sortWithinPartitions(*FROM)
