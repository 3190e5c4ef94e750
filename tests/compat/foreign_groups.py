"""librdkafka's own tests with groups of KIP-848, and Apache Kafka's answer to what fails here:
python -m tests.compat.foreign_groups [NUMBER…]

All tests that need a broker run with TEST_CONSUMER_GROUP_PROTOCOL=consumer. Those that fail run once more, alone, here
and against Apache Kafka 4.3.1: the command fails if one of them passes there only. Tests of share groups are left out.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from pqbroker.testing import FOR_TESTS, broker
from tests.compat.librdkafka_suite import RULES, build, run_suite
from tests.support.kafka.broker import ApacheKafka

SETTINGS: Final = {
    **RULES, "num.partitions": "4", "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0", "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200", "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
}  # fmt: skip
"""Settings of both brokers. Tests wait for no session that is longer."""
PROTOCOL: Final = {"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.foreign_groups", description=__doc__)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="numbers of tests, such as 0033; without: all")
    build()
    with broker(settings={**FOR_TESTS, **SETTINGS}) as node:
        found = dict(_run(node.kafka, parser.parse_args().numbers))
        if failed := _failed(found):
            found |= _run(node.kafka, failed)
    failed = _failed(found)
    print(f"failed here: {', '.join(failed) or 'none'}", flush=True)
    theirs = _failed(_beside_kafka(failed)) if failed else []
    ours_alone = [number for number in failed if number not in theirs]
    passed = sum(outcome == "PASSED" for outcome in found.values())
    named = f", only here {', '.join(ours_alone)}" if ours_alone else ""
    also = f"{len(failed)} failed, of these {len(theirs)} in Kafka too{named}"
    print(f"{passed} tests of librdkafka passed with groups of KIP-848, {also}")
    sys.exit(1 if ours_alone or not passed else 0)


def _beside_kafka(numbers: Sequence[str]) -> Mapping[str, str]:
    with ApacheKafka(properties=SETTINGS) as kafka:
        return _run(kafka.kafka, numbers)


def _run(address: str, numbers: Sequence[str]) -> Mapping[str, str]:
    return run_suite({"bootstrap.servers": address}, PROTOCOL, numbers)


def _failed(found: Mapping[str, str]) -> list[str]:
    return sorted({name[:4] for name, outcome in found.items() if outcome == "FAILED"})


if __name__ == "__main__":
    main()
