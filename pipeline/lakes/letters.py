"""Dead letters: what does not fit a job's schema, in a topic beside the one it came from."""

from pyspark.sql import DataFrame

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.causes import FAILURES, innermost
from pqbroker.pipeline.connection_security import spark_options
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.landing import LETTERS

_ANY_SIZE = {
    "kafka.max.request.size": str(2**31 - 1),
    "kafka.buffer.memory": str(128 << 20),
    "kafka.compression.type": "zstd",
}
"""Producer settings for what was in the topic, however large: a record that is refused would stop the job for good.

A producer's own limits are for records before compression, the topic's for batches behind it.
"""
_REASON_BYTES_MAX = 64 << 10
_BATCH_BYTES_LIMIT = 120 << 20


class DeadLetters:
    """The dead letters of one topic."""

    def __init__(self, admin: Admin, topic: str, broker: str) -> None:
        """Makes their topic where it is missing. JobError when it cannot."""
        self._topic = f"{topic}{LETTERS}"
        self._broker = broker
        try:
            admin.ensure_topic(self._topic, _letter_bytes_max(admin.batch_bytes_max(topic)))
        except AdminError as error:
            raise JobError(f"the broker at {broker}: {error}") from error

    def send(self, letters: DataFrame) -> int:
        """Write them; their count."""
        sink = {"kafka.bootstrap.servers": self._broker, "topic": self._topic, "includeHeaders": "true"}
        sink |= spark_options()
        try:
            if found := letters.count():
                letters.write.format("kafka").options(**sink, **_ANY_SIZE).save()
            return found
        except FAILURES as error:
            raise JobError(f"dead letters to {self._topic}: {innermost(error)}") from None


def _letter_bytes_max(batch_bytes_max: int) -> int:
    """Return the batch bytes of a topic for dead letters: those of its topic, and the reason's if the limit allows
    it."""
    return max(batch_bytes_max, min(batch_bytes_max + _REASON_BYTES_MAX, _BATCH_BYTES_LIMIT))
