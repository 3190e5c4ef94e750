"""Why Spark failed, in a line: the innermost cause; what is round it names threads, tasks and its own classes."""

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

FAILURES = (CapturedException, Py4JJavaError)
"""What a call into Spark raises when the work failed in the JVM."""


def innermost(error: CapturedException | Py4JJavaError) -> str:
    """The message of the innermost cause."""
    origin: Any = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
    if origin is None:
        return str(error).splitlines()[0]
    while origin.getCause() is not None:
        origin = origin.getCause()
    return " ".join(str(origin.getMessage() or origin.toString()).split())
