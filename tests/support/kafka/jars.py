"""Kafka's jars: fetched once by Maven into the checkout's `.cache/`, then found there.

`PQBROKER_KAFKA_JARS` names another directory, which may already hold them.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"

QUICK_START = (
    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions", "-XX:-PrintWarnings", "-XX:-BytecodeVerificationRemote",
)  # fmt: skip
"""Options of a Java that lives for seconds or minutes: neither the second compiler nor a collector of many threads, and
no proof that classes of known jars are sound, which is a fifth of what a start costs."""

_ROOT = Path(__file__).resolve().parents[3]
_POM = Path(__file__).with_name("pom.xml")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_TIMEOUT_S = 600


class KafkaUnavailableError(Exception):
    """Java or Maven is missing, or the jars could not be fetched; the text says what to install."""


def java() -> str:
    """The path of the Java runtime: JAVA_HOME's, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return _found("java", Path(home, "bin") if home else None, "a Java runtime, 17 or newer")


def classpath() -> str:
    """The class path with every jar that Kafka and its tools need; fetches them at the first call."""
    return f"{_jars()}/*"


def tools_jar() -> str:
    """The jar of the command line tools."""
    return str(_jars() / f"kafka-tools-{KAFKA_VERSION}.jar")


def clients_jar() -> str:
    """The jar of the clients, which has Kafka's definitions of its messages."""
    return str(_jars() / f"kafka-clients-{KAFKA_VERSION}.jar")


def _jars() -> Path:
    directory = Path(os.environ.get("PQBROKER_KAFKA_JARS") or _ROOT / ".cache" / f"kafka-{KAFKA_VERSION}")
    if not directory.exists():
        _fetch(directory)
    return directory


def _fetch(directory: Path) -> None:
    """Fetch into a directory beside and rename: two processes at once, or an interrupt, leave no half set."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=directory.parent))
    command = [_found("mvn", None, "Maven"), "-q", "-B", "-f", str(_POM), _COPY]
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={partial}", f"-Dkafka.version={KAFKA_VERSION}"]
    try:
        run = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
        if run.returncode != 0:
            raise KafkaUnavailableError(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}:\n{run.stdout[-2000:]}")
        _place(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _place(partial: Path, directory: Path) -> None:
    try:
        partial.rename(directory)
    except OSError:
        if not directory.exists():  # else another process was first, with the same jars
            raise


def _found(program: str, directory: Path | None, what: str) -> str:
    path = shutil.which(program, path=str(directory) if directory else None)
    if path is None:
        raise KafkaUnavailableError(f"Apache Kafka {KAFKA_VERSION} needs {what}; `{program}` was not found")
    return path
