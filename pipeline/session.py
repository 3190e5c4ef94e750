"""A SparkSession that can read and write Kafka topics: finds Java and the Kafka source's jars before the JVM starts.

Nothing here talks to a broker; topics are read and written with Spark's own `format("kafka")`.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

JARS_VARIABLE = "PQBROKER_SPARK_JARS"
KAFKA_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
_ARTIFACTS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
_CHECKOUT = Path(__file__).resolve().parents[1]
_FETCH = (
    "fetch them with: mvn -q -f pipeline/pom.xml "
    "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory={directory}"
)


class SparkUnavailableError(RuntimeError):
    """Spark cannot start here; the text names what is missing and how to get it."""


def start_session(
    application: str, *, jars: Path | None = None, master: str | None = None, options: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or return the session that runs already, with the Kafka source on its class path.

    The jars come from the directory `jars`, else from $PQBROKER_SPARK_JARS, else from the checkout's .cache/spark-jars,
    else Spark downloads them as a package. `options` are Spark settings and override what is set here.
    Raises SparkUnavailableError without Java, and for a named directory that lacks a jar.
    """
    check_java()
    found = find_jars(jars)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName(application)
    if found:
        builder = builder.config("spark.jars", ",".join(str(path) for path in found))
    else:
        builder = builder.config("spark.jars.packages", KAFKA_PACKAGE)
    if master is not None:
        builder = builder.master(master)
    for name, value in (options or {}).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkUnavailableError(_explain_exit(downloaded=not found)) from error


def find_jars(directory: Path | None = None) -> tuple[Path, ...]:
    """The jars of the Kafka source, from the places `start_session` names; empty when none is named and none fetched.

    Raises SparkUnavailableError when a directory that was named lacks one of them.
    """
    if directory is None and os.environ.get(JARS_VARIABLE):
        directory = Path(os.environ[JARS_VARIABLE])
    if directory is not None:
        return _jars_in(directory)
    cache = _CHECKOUT / ".cache" / "spark-jars"
    return _jars_in(cache) if cache.is_dir() else ()


def check_java() -> None:
    """Raise SparkUnavailableError when there is no Java: Spark itself would only say that its gateway exited."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise SparkUnavailableError(f"no java {where}; install Java 17 or newer (on Debian: openjdk-17-jre-headless)")


def _jars_in(directory: Path) -> tuple[Path, ...]:
    """One jar per artifact; a directory that lacks one is an error, since Spark would fail much later and say less."""
    found = {name: sorted(directory.glob(f"{name}-[0-9]*.jar")) for name in _ARTIFACTS}
    missing = [name for name, paths in found.items() if not paths]
    if missing:
        fetch = _FETCH.format(directory=directory)
        raise SparkUnavailableError(f"{directory} has no jar of {', '.join(missing)}; {fetch}")
    return tuple(paths[-1].resolve() for paths in found.values())


def _explain_exit(*, downloaded: bool) -> str:
    text = "Spark's Java process ended at its start; it needs Java 17 or newer with the module jdk.incubator.vector"
    if not downloaded:
        return text
    directory = _CHECKOUT / ".cache" / "spark-jars"
    return f"{text}, and had to download {KAFKA_PACKAGE}; where that cannot be, {_FETCH.format(directory=directory)}"
