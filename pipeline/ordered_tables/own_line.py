"""A refusal of the format as Spark tells it: its own line comes first, without the traceback of the worker.

Spark's worker writes the traceback of an error first and its line last, where nobody looks. It leaves the traceback out
where an environment variable says so, and ends behind the error: so the variable is set for that error alone, and in a
worker alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pqbroker.client import ClientError
from pqbroker.pipeline.errors import JobError

HIDE: Final = "SPARK_HIDE_TRACEBACK"
RUNTIME: Final = "SPARK_PYTHON_RUNTIME"
WORKER: Final = "PYTHON_WORKER"


@contextmanager
def own_line_first() -> Iterator[None]:
    """Have Spark leave out the traceback of an error that names its cause and cure; a defect keeps its own."""
    try:
        yield
    except (JobError, ClientError):
        if os.environ.get(RUNTIME) == WORKER:
            os.environ[HIDE] = "1"
        raise
