"""librdkafka and its own tests, built from the sources in the npm package of its JavaScript client, and how they are
run against a broker.

Topics that they create with three replicas have one: one broker refuses more. Statistics are read by RapidJSON, whose
headers are in the sources of python-rapidjson; scripts of Kafka's that tests run come from Kafka's jars.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.support.java.tools import CLASSES
from tests.support.kafka.jars import QUICK_START, classpath, java

PACKAGE: Final = "@confluentinc/kafka-javascript@1.10.1"
RAPIDJSON: Final = "python-rapidjson==1.25"
BUILT: Final = Path(__file__).resolve().parents[2] / ".cache" / "librdkafka-2.15.1-whole"
RULES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of a broker with access rules, which both brokers have; tests make some."""
PLAYING_WITH_SOCKETS: Final = ("0049", "0068", "0075", "0076", "0088", "0094")
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_CONFIGURED: Final = ("--disable-gssapi", "--enable-ssl", "--disable-zstd", "--disable-curl", "--no-download")
_REPLICAS: Final = re.compile(r"(create_topic_wait_exists\([^;]*), 3, 5000\)")
_SCRIPTS: Final = ("kafka-topics", "kafka-acls", "kafka-configs")
_OUTCOME: Final = re.compile(r"\| *(\d{4}_\w+) *\| *(PASSED|FAILED|SKIPPED|RUNNING|DNS) *\|")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_TIMEOUT_S: Final = 1800


def run_test(name: str, settings: Mapping[str, str], environment: Mapping[str, str] = NOTHING) -> bool:
    """Run one test with settings of a client; one that is skipped has not passed, and one that fails prints why."""
    with _prepared(settings) as prepared:
        return passes(
            ["./test-runner", "-Q"], BUILT / "tests", {**prepared, "TESTS": name, **environment}, "SKIPPED"
        )


def run_suite(settings: Mapping[str, str], environment: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Run tests that need a broker, whole ones and not the quick ones, and return the outcome of each: PASSED, FAILED
    or SKIPPED. `names`: only these, one by one, by their numbers; without any all, four at a time. Those that play with
    sockets run alone: they close what others in their process have open."""
    runs = [["-p1"] for _ in names] or [["-p4", "-E"], *(["-p1"] for _ in PLAYING_WITH_SOCKETS)]
    found: dict[str, str] = {}
    with _prepared(settings) as prepared:
        for name, arguments in zip(names or ["", *PLAYING_WITH_SOCKETS], runs, strict=True):
            done = subprocess.run(
                ["./test-runner", "-L", "-K", *arguments], cwd=BUILT / "tests",
                env={**os.environ, **prepared, **environment, **({"TESTS": name} if name else {})},
                capture_output=True, timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
            found |= _outcomes(done.stdout.decode(errors="replace"))
    return found


def _outcomes(said: str) -> dict[str, str]:
    """Return the outcomes that the summary of a run names; a test that did not end has failed."""
    read = dict(_OUTCOME.findall(_COLOURS.sub("", said)))
    return {name: "FAILED" if outcome in ("RUNNING", "DNS") else outcome for name, outcome in read.items()}


def passes(command: Sequence[str], directory: Path, settings: Mapping[str, str], unwanted: str = "") -> bool:
    """Run a command, and print what it says where it fails, or says a word that it must not."""
    done = subprocess.run(
        command, cwd=directory, env=os.environ | settings, capture_output=True, timeout=_TIMEOUT_S, check=False
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    is_good = not done.returncode and not (unwanted and unwanted in said)
    if not is_good:
        print(said[-3000:])
    return is_good


@contextmanager
def _prepared(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Give the environment of tests: settings of the client in a file, and Kafka's scripts."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "test.conf")
        file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()), encoding="utf-8")
        start = f'exec "{java()}" {" ".join(QUICK_START)} -cp'
        _write_script(scratch, "kafka-run-class", f'{start} "$CLASSPATH:{classpath()}"')
        for name in _SCRIPTS:
            _write_script(scratch, name, f'{start} "{classpath()}" {CLASSES[name]}')
        yield {
            "LD_LIBRARY_PATH": "../src:../src-cpp", "RDKAFKA_TEST_CONF": str(file), "KAFKA_PATH": scratch,
            "BROKERS": settings["bootstrap.servers"], "TEST_KAFKA_VERSION": "4.1.0.0",
        }  # fmt: skip


def _write_script(directory: str, name: str, command: str) -> None:
    script = Path(directory, "bin", f"{name}.sh")
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\n{command} "$@"\n', encoding="utf-8")
    script.chmod(0o755)


def build() -> None:
    """Fetch and build librdkafka and its tests, unless that was done before."""
    if BUILT.exists():
        return
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT.parent) as scratch:
        perform(["npm", "pack", PACKAGE], Path(scratch))
        (packed,) = Path(scratch).glob("*.tgz")
        perform(["tar", "xzf", packed.name, "package/deps/librdkafka"], Path(scratch))
        sources = Path(scratch, "package", "deps", "librdkafka")
        tests = sources / "tests"
        for changed in sorted(tests.glob("0*.c*")):
            text = changed.read_text(encoding="utf-8")
            changed.write_text(_REPLICAS.sub(r"\1, 1, 5000)", text), encoding="utf-8")
        headers = _fetch_rapidjson(Path(scratch))
        perform(["./configure", *_CONFIGURED, f"--CXXFLAGS=-I{headers}"], sources)
        perform(["make", "libs"], sources)
        perform(["make", "test-runner"], tests)
        programs = [str(each) for each in sorted(tests.glob("java/*.java"))]
        perform(["javac", "-cp", classpath(), *programs], tests)
        shutil.move(sources, BUILT)


def _fetch_rapidjson(scratch: Path) -> Path:
    """Fetch RapidJSON's headers, and return their directory."""
    perform([sys.executable, "-m", "pip", "download", "-q", RAPIDJSON, "--no-binary", ":all:", "--no-deps"], scratch)
    (packed,) = scratch.glob("python_rapidjson-*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(scratch, filter="data")
    (headers,) = scratch.glob("python_rapidjson-*/rapidjson/include")
    return headers


def perform(command: Sequence[str], directory: Path) -> None:
    """Run a command that makes something; the program ends where it fails."""
    done = subprocess.run(command, cwd=directory, capture_output=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode(errors='replace')[-2000:]}")
