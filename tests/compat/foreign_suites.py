"""Tests that other projects have for transactions and groups: python -m tests.compat.foreign_suites

librdkafka's 0055, 0061, 0077, 0098, 0103, 0129 and 0137, built from the sources in the npm package of its JavaScript
client, and franz-go's TestTxnEtl, TestGroupETL, TestGroupSimple and Test848RegexBrokerResolves, with classic groups and
groups of KIP-848. Topics of 0103 have three replicas, which one broker refuses: there it is one. 0098 reads statistics
by RapidJSON, whose headers are in the sources of python-rapidjson.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pqbroker.testing import FOR_TESTS, broker
from tests.support.drivers.franz_go_driver import own_tests

PACKAGE: Final = "@confluentinc/kafka-javascript@1.10.1"
RAPIDJSON: Final = "python-rapidjson==1.25"
BUILT: Final = Path(__file__).resolve().parents[2] / ".cache" / "librdkafka-2.15.1-tls-json"
TESTS: Final = ("0055", "0061", "0077", "0098", "0103", "0129", "0137")
OF_FRANZ_GO: Final = ("TestTxnEtl", "TestGroupETL", "TestGroupSimple", "Test848RegexBrokerResolves")
RECORDS: Final = 100_000
"""Records of franz-go's larger tests."""
_CONFIGURED: Final = ("--disable-gssapi", "--enable-ssl", "--disable-zstd", "--disable-curl", "--no-download")
_REPLICAS = re.compile(r"(test_create_topic_wait_exists\([^;]*), 3, 5000\)")
_TIMEOUT_S: Final = 1800
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def main() -> None:
    every = (*TESTS, *OF_FRANZ_GO)
    parser = argparse.ArgumentParser(prog="python -m tests.compat.foreign_suites", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(every)}; without: all")
    names: Sequence[str] = parser.parse_args().names or every
    if any(name in TESTS for name in names):
        build()
    failed: list[str] = []
    with broker(settings=FOR_TESTS) as node:
        for name in names:
            is_good = run(name, node.kafka)
            print(f"{name} {'passed' if is_good else 'FAILED'}", flush=True)
            failed += [] if is_good else [name]
    print(f"{len(names) - len(failed)} of {len(names)} tests of librdkafka and franz-go passed: {', '.join(names)}")
    sys.exit(1 if failed else 0)


def run(name: str, address: str) -> bool:
    """Run one test; its output is printed where it fails."""
    if name in OF_FRANZ_GO:
        settings = {"KGO_SEEDS": address, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS), "GOMAXPROCS": "1"}
        return passes([str(own_tests()), "-test.v", "-test.run", f"^{name}$"], Path.cwd(), settings, "--- SKIP")
    return run_librdkafka(name, {"bootstrap.servers": address})


def run_librdkafka(name: str, settings: Mapping[str, str], environment: Mapping[str, str] = _NOTHING) -> bool:
    """Run one test of librdkafka's with settings of a client; one that is skipped has not passed."""
    directory = BUILT / "tests"
    lines = "".join(f"{setting}={text}\n" for setting, text in settings.items())
    (directory / "test.conf").write_text(lines, encoding="utf-8")
    environment = {"TESTS": name, "LD_LIBRARY_PATH": "../src:../src-cpp", **environment}
    return passes(["./test-runner", "-Q"], directory, environment, "SKIPPED")


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
        changed = sources / "tests" / "0103-transactions.c"
        changed.write_text(_REPLICAS.sub(r"\1, 1, 5000)", changed.read_text(encoding="utf-8")), encoding="utf-8")
        headers = _fetch_rapidjson(Path(scratch))
        perform(["./configure", *_CONFIGURED, f"--CXXFLAGS=-I{headers}"], sources)
        perform(["make", "libs"], sources)
        perform(["make", "test-runner"], sources / "tests")
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


if __name__ == "__main__":
    main()
