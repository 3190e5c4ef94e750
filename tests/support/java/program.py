"""Compiles this directory's Java against a client's jars, once, and starts its programs."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.support.kafka.jars import QUICK_START, classpath, java

OLDER, NEWER = "3.9.2", "4.3.1"

STREAMS = "kafka-streams-4.3.1"
"""Directory of the jars of Kafka Streams, which the program Counting needs beside Kafka's."""

CONNECT_FILE = "kafka-connect-file-4.3.1"
"""Directory of the jar of Kafka Connect's file connectors."""

_FOR_TOKENS = ("jose4j", "jackson-annotations", "jackson-core", "jackson-databind")
"""Jars that the client wants for OAUTHBEARER and does not bring along."""
_ROOT = Path(__file__).resolve().parents[3]
_SOURCES = Path(__file__).parent
_COMPILE_TIMEOUT_S = 120
_OPTIONS = (*QUICK_START, "-Xmx256m", "-Djava.awt.headless=true")


def client_jars(version: str) -> str:
    """The class path of Kafka's Java client of that version; the newer one's is that of Kafka and its tools."""
    if version == NEWER:
        return classpath()
    directory = _ROOT / ".cache" / f"kafka-clients-{version}"
    assert directory.exists(), f"the jars of kafka-clients {version} are missing: ./test fetches them into {directory}"
    kafka = _ROOT / ".cache" / "kafka-4.3.1"
    for_tokens = [str(jar) for name in _FOR_TOKENS for jar in kafka.glob(f"{name}-[0-9]*.jar")]
    return os.pathsep.join((f"{directory}/*", *for_tokens))


def start(
    program: str, arguments: Sequence[str], version: str, options: Sequence[str] = (), errors: IO[str] | None = None
) -> subprocess.Popen[str]:
    """Start a program of the file of its name, talking over its standard input and output. `options`: those of Java;
    `errors`: gets its standard error."""
    jars = os.pathsep.join((client_jars(version), *_further_jars(program)))
    classes = compiled(version, _sources(program), jars)
    command = [java(), *_OPTIONS, *options, "-cp", os.pathsep.join((str(classes), jars)), program, *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
    )


def stop(process: subprocess.Popen[str]) -> None:
    """Close its standard input, at which it ends, and await the end."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def compiled(version: str, sources: Sequence[Path], jars: str) -> Path:
    """The directory of the classes, under a name that changes with the sources."""
    print_of = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    directory = _ROOT / ".cache" / "java" / f"{version}-{print_of}"
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=directory.parent))
        _compile(fresh, jars, sources)
        try:
            fresh.rename(directory)
        except OSError:  # another process was first, with the same classes
            shutil.rmtree(fresh)
    return directory


def _compile(target: Path, jars: str, sources: Sequence[Path]) -> None:
    program = shutil.which("javac", path=str(Path(java()).resolve().parent)) or shutil.which("javac")
    assert program, "javac is missing; install a JDK (on Debian: apt-get install openjdk-17-jdk-headless)"
    command = [program, "-Xlint:none", "-nowarn", "-d", str(target), "-cp", jars, *map(str, sources)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
    assert run.returncode == 0, run.stderr


def _further_jars(program: str) -> list[str]:
    return [further_jars(STREAMS)] if program == "Counting" else []


def further_jars(name: str) -> str:
    """The class path of jars that are no part of Kafka's own."""
    directory = _ROOT / ".cache" / name
    assert directory.exists(), f"jars are missing: ./test fetches them into {directory}"
    return f"{directory}/*"


def _sources(program: str) -> list[Path]:
    """The program's own file and those beside it; only the client's program knows another Kafka than 4.3."""
    beside = ("AdminCalls", "Json") if program == "Client" else ("Json",)
    return [_SOURCES / f"{name}.java" for name in (program, *beside)]
