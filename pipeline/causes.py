"""Spark's failures, in a line each: the innermost cause; what is round it names threads, tasks and its own classes."""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from pqbroker.pipeline.errors import JobError

FAILURES = (CapturedException, Py4JJavaError)
"""Errors of a call into Spark when the work failed in the JVM."""

_NO_ROOM = ("No space left on device", "Disk quota exceeded")
"""Texts by which a system reports a full disk."""
_LOSS = ("KAFKA_DATA_LOSS", "Some data may have been lost")
"""Texts by which Spark's Kafka source reports that records are gone."""


def failure(error: CapturedException | Py4JJavaError, topic: str, broker: str) -> JobError:
    """Return the error that Spark failed with, as the job says it."""
    *_, why = messages = list(_messages(error))
    if any(mark in why for mark in _NO_ROOM):
        place = "in the job's directory or Spark's temporary one"
        return JobError(f"cannot write a batch of {topic}: {why}, {place}; make room and start the job again")
    if any(mark in message for mark in _LOSS for message in messages):
        why = f"records were gone before they were read, by retention or deleted; --allow-loss continues behind ({why})"
    return JobError(f"topic {topic} at {broker}: {why}")


def innermost(error: CapturedException | Py4JJavaError) -> str:
    """The message of the innermost cause."""
    *_, message = _messages(error)
    return message


def _messages(error: CapturedException | Py4JJavaError) -> Iterator[str]:
    """A line for each cause, the innermost last."""
    origin: Any = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
    if origin is None:
        yield str(error).splitlines()[0]
    while origin is not None:
        yield " ".join(str(origin.getMessage() or origin.toString()).split())
        origin = origin.getCause()
