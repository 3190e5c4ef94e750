"""Tests that other projects have for transactions and groups: python -m tests.compat.foreign_suites

librdkafka's 0055, 0061, 0077, 0098, 0103, 0129 and 0137, and franz-go's TestTxnEtl, TestGroupETL and TestGroupSimple,
with classic groups and groups of KIP-848. franz-go's Test848RegexBrokerResolves is left out: it reads
__consumer_offsets, a topic that does not exist here.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pqbroker.testing import FOR_TESTS, broker
from tests.compat.librdkafka_suite import build, passes, run_test
from tests.support.drivers.franz_go_driver import own_tests

TESTS: Final = ("0055", "0061", "0077", "0098", "0103", "0129", "0137")
OF_FRANZ_GO: Final = ("TestTxnEtl", "TestGroupETL", "TestGroupSimple")
RECORDS: Final = 100_000
"""Records of franz-go's larger tests."""


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
    return run_test(name, {"bootstrap.servers": address})


if __name__ == "__main__":
    main()
