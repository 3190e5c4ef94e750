"""Tests that other projects have for logins and access rules: python -m tests.compat.foreign_logins

librdkafka's 0109, 0115 and 0119 deny topics by `kafka-acls`; its 0135 and 0142 log in by each mechanism, plainly and
over TLS, the latter again and again; kafka-python's test_sasl_integration logs in by each. By OAUTHBEARER librdkafka's
0142 makes unsigned tokens of its own, which this broker never takes. confluent-kafka's package has no tests of logins.
"""

import argparse
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from pqbroker.testing import FOR_TESTS, broker
from tests.compat.librdkafka_suite import BUILT, RULES, build, passes, perform, run_test

KAFKA_PYTHON: Final = "3.0.12"
GUARDED: Final = ("0109", "0115", "0119")
LOGINS: Final = ("0135", "0142")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TESTED: Final = "test/integration/test_sasl_integration.py"
USER, PASSWORD = "alice", "alice-secret"
"""Those of kafka-python's tests."""
_LOCKED: Final = {"sasl.enabled.mechanisms": ",".join(MECHANISMS), "connections.max.reauth.ms": "5000"}
_SERVICE: Final = "ExternalService = SpawnedService = lambda *_: None\n"
"""Classes that the package lacks and its tests import: they start a Kafka, which runs already here."""
_CONFTEST: Final = Path(__file__).with_name("kafka_python_conftest.txt")


def main() -> None:
    runs = dict(_runs())
    parser = argparse.ArgumentParser(prog="python -m tests.compat.foreign_logins", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names; without one: all")
    wanted = tuple(parser.parse_args().names) or ("",)
    build()
    failed: list[str] = []
    chosen = [name for name in runs if name.startswith(wanted)]
    for name in chosen:
        is_good = runs[name]()
        print(f"{name} {'passed' if is_good else 'FAILED'}", flush=True)
        failed += [] if is_good else [name]
    named = f"; failed: {', '.join(failed)}" if failed else ""
    print(f"{len(chosen) - len(failed)} of {len(chosen)} runs of librdkafka's and kafka-python's tests passed{named}")
    sys.exit(1 if failed else 0)


def _runs() -> Iterator[tuple[str, Callable[[], bool]]]:
    for name in GUARDED:
        yield f"{name} with rules", partial(_guarded, name)
    for mechanism in MECHANISMS:
        for name in LOGINS:
            for tls in (False, True):
                protocol = "SASL_SSL" if tls else "SASL_PLAINTEXT"
                yield f"{name} {mechanism} {protocol}", partial(_logged_in, name, mechanism, protocol)
    yield "kafka-python test_sasl_integration", _kafka_python


def _guarded(name: str) -> bool:
    with broker(settings={**FOR_TESTS, **RULES}) as node:
        return run_test(name, {"bootstrap.servers": node.kafka})


def _logged_in(name: str, mechanism: str, protocol: str) -> bool:
    tls = protocol == "SASL_SSL"
    with broker(settings={**FOR_TESTS, **_LOCKED}, users={USER: PASSWORD}, tls=tls) as node:
        security: Mapping[str, str] = {
            "bootstrap.servers": node.kafka, "security.protocol": protocol, "sasl.mechanism": mechanism,
            "sasl.username": USER, "sasl.password": PASSWORD,
        }  # fmt: skip
        return run_test(name, {**security, **({"ssl.ca.location": str(node.tls.ca)} if tls else {})})


def _kafka_python() -> bool:
    directory = BUILT.with_name(f"kafka-python-{KAFKA_PYTHON}")
    if not directory.exists():
        _fetch(directory)
    (directory / "test" / "__init__.py").touch()  # else `test` is Python's own package
    (directory / "test" / "service.py").write_text(_SERVICE, encoding="utf-8")
    shutil.copy(_CONFTEST, directory / "test" / "integration" / "conftest.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTED]
    with broker(settings={**FOR_TESTS, **_LOCKED}, users={USER: PASSWORD}) as node:
        environment = {"KAFKA_VERSION": "4.0.0", "TESTED_BROKER": node.kafka, "KAFKA_ROOT": str(directory)}
        return passes(command, directory, environment, "skipped")


def _fetch(directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        source = [f"kafka-python=={KAFKA_PYTHON}", "--no-binary", ":all:", "--no-deps"]
        perform([sys.executable, "-m", "pip", "download", "-q", *source], Path(scratch))
        (packed,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(scratch, filter="data")
        (unpacked,) = (path for path in Path(scratch).iterdir() if path.is_dir())
        shutil.move(unpacked, directory)


if __name__ == "__main__":
    main()
