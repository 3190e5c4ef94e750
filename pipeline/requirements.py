"""Requirements of Spark on this machine: PySpark, Java, the jars of its Kafka source. They are found before Spark
starts, without it.

Spark itself names what is missing a minute later and worse: "Java gateway process exited".
"""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from pqbroker.pipeline.errors import JobError

JARS_VARIABLE = "PQBROKER_SPARK_JARS"
_PYSPARK = "pyspark==4.2.0"
_ARTIFACTS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
_PACKAGE = Path(__file__).resolve().parent
_CACHE = _PACKAGE.parent / ".cache" / "spark-jars"
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class SparkUnavailableError(JobError):
    """Spark cannot start here; the text names in three lines what is missing and how to get it."""


def check_pyspark() -> None:
    """Raise SparkUnavailableError without PySpark."""
    if find_spec("pyspark") is None:
        raise SparkUnavailableError(
            f"PySpark is missing: {sys.executable} has no module pyspark\n"
            f"install it: {sys.executable} -m pip install {_PYSPARK}\n"
            "then run the command again; it needs Java 17 or newer, too"
        )


def check_java() -> None:
    """Raise SparkUnavailableError without Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise SparkUnavailableError(
            f"Java is missing: no java {where}\n"
            "install Java 17 or newer: apt-get install default-jre-headless (Debian), brew install openjdk (macOS)\n"
            "then run the command again, with java on the PATH or its directory in JAVA_HOME"
        )


def find_jars(directory: Path | None = None) -> tuple[Path, ...]:
    """Return the jars of the Kafka source: from `directory`, else $PQBROKER_SPARK_JARS, else the checkout's
    .cache/spark-jars.

    Empty if none of these places has them. Raises SparkUnavailableError when a directory that was named lacks a jar.
    """
    if directory is None and os.environ.get(JARS_VARIABLE):
        directory = Path(os.environ[JARS_VARIABLE])
    if directory is not None:
        return _jars_in(directory)
    return _jars_in(_CACHE) if _CACHE.is_dir() else ()


def jars_missing(what: str) -> SparkUnavailableError:
    """Return the error that says what is missing, and how to fetch it; the cure works in a clone and beside an
    installed wheel."""
    pom = _PACKAGE / "pom.xml"
    return SparkUnavailableError(
        f"{what}\n"
        f'fetch them with Maven: mvn -q -f {pom} {_GOAL} -DoutputDirectory="$PWD/spark-jars"\n'
        f'then: export {JARS_VARIABLE}="$PWD/spark-jars"'
    )


def _jars_in(directory: Path) -> tuple[Path, ...]:
    """Return one jar per artifact. A directory that lacks one is an error, since Spark would fail much later and say
    less."""
    found = {name: sorted(directory.glob(f"{name}-[0-9]*.jar")) for name in _ARTIFACTS}
    missing = [name for name, paths in found.items() if not paths]
    if missing:
        raise jars_missing(f"Spark's Kafka jars are missing: {directory} has no jar of {', '.join(missing)}")
    return tuple(paths[-1].resolve() for paths in found.values())
