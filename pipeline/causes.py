"""Why Spark failed, in a line: the innermost cause; what is round it names threads, tasks and its own classes."""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from pqbroker.pipeline.landing import LandError, Landing

FAILURES = (CapturedException, Py4JJavaError)
"""What a call into Spark raises when the work failed in the JVM."""


_LOSS = ("KAFKA_DATA_LOSS", "Some data may have been lost")
"""How Spark's Kafka source says that records were gone."""


def failure(error: CapturedException | Py4JJavaError, landing: Landing) -> LandError:
    """What Spark failed with, as the job says it."""
    *_, why = messages = list(_messages(error))
    if any(mark in message for mark in _LOSS for message in messages):
        why = f"records were gone before they were read, by retention or deleted; --allow-loss goes on behind ({why})"
    return LandError(f"topic {landing.topic} at {landing.broker}: {why}")


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
