"""A SparkSession that can read and write Kafka topics, with the jars of its Kafka source on the class path.

Nothing here talks to a broker; topics are read and written with Spark's own `format("kafka")`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pqbroker.pipeline.ordered_tables.source import register
from pqbroker.pipeline.requirements import SparkUnavailableError, check_java, find_jars, jars_missing

KAFKA_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


def start_session(
    application: str, *, jars: Path | None = None, master: str | None = None, options: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or return the session that runs already, with the Kafka source on its class path.

    The jars come from the directory `jars` or from where `find_jars` looks, else Spark downloads them as a package.
    `options` are Spark settings and override what is set here.
    Raises SparkUnavailableError without Java, and for a named directory that lacks a jar.
    """
    check_java()
    found = find_jars(jars)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName(application)
    if found:
        builder = builder.config("spark.jars", ",".join(path.as_uri() for path in found))
    else:
        builder = builder.config("spark.jars.packages", KAFKA_PACKAGE)
    if master is not None:
        builder = builder.master(master)
    for name, value in (options or {}).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise _exited(downloading=not found) from error
    register(session)
    return session


def _exited(*, downloading: bool) -> SparkUnavailableError:
    if downloading:
        return jars_missing(f"Spark's Java process ended at its start; it could not download {KAFKA_PACKAGE}, it seems")
    return SparkUnavailableError(
        "Spark's Java process ended at its start\n"
        "it needs Java 17 or newer with the module jdk.incubator.vector: `java --list-modules` shows it\n"
        "Debian's openjdk-17-jre-headless has it; JAVA_HOME names another Java"
    )
