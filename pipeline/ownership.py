"""One job in a directory at a time. The lock is the JVM's, which outlives a killed job for a moment."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pqbroker.pipeline.errors import JobError

_WAIT_S = 10.0
_LOOK_EVERY_S = 0.1


@contextmanager
def owned(spark: SparkSession, directory: Path) -> Iterator[None]:
    """Hold the directory's lock; waits a little for a job that ends. JobError when another job stays."""
    jvm: Any = spark.sparkContext._jvm
    file = jvm.java.io.RandomAccessFile(str(directory / "lock"), "rw")
    try:
        deadline = time.monotonic() + _WAIT_S
        while not _lock(file):
            if time.monotonic() > deadline:
                raise JobError(f"another job uses {directory}; stop it, or name another directory")
            time.sleep(_LOOK_EVERY_S)
        yield
    finally:
        file.close()


def _lock(file: Any) -> bool:
    try:
        return file.getChannel().tryLock() is not None
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "OverlappingFileLockException":  # held by this very JVM
            raise
        return False
