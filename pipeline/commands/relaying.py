"""The work of `copy` and of `redrive`, which copies dead letters."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pqbroker.pipeline.commands.parsing import Work
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.relays.copying import Copying
from pqbroker.pipeline.relays.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def relay_work(copying: Copying) -> Work:
    """The job. A batch of a limited job lasts about an interval: it would be silent, and slow to stop, for longer."""
    if copying.records_per_s is not None:
        rows = max(1, int(copying.records_per_s * max(1.0, copying.interval_s)))
        copying = replace(copying, batch_rows_max=min(copying.batch_rows_max, rows))

    def check() -> None:
        if (copying.topic, copying.broker) == (copying.target, copying.target_broker):
            raise JobError(f"topic {copying.topic} would be copied into itself; name another topic")
        Journal(copying.state)

    def look() -> None:
        from pqbroker.pipeline.looking import check_copied

        if not copying.are_letters:  # a letter is what it was before it failed
            check_copied((copying.broker, copying.topic), (copying.target_broker, copying.target))

    def perform(spark: "SparkSession", say: Callable[[str], None], stopping: threading.Event) -> None:
        from pqbroker.pipeline.relays.copy import copy

        copy(spark, copying, say, stopping)

    elsewhere = "" if copying.target_broker == copying.broker else f" at {copying.target_broker}"
    title = f"topic {copying.topic} into topic {copying.target}{elsewhere}"
    brokers = tuple(dict.fromkeys((copying.broker, copying.target_broker)))
    waits_for = f"waiting for the first batch of {copying.topic}"
    return Work(title, brokers, check, perform, waits_for, (copying.topic,), look=look)
