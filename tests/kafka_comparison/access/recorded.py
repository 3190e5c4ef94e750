"""Apache Kafka's answers of the last comparison of access rules, as data, for `test_access_rules.py`.

Most rights change few answers, so each different answer to a request is kept once.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.kafka_comparison.differences import Answer

FILE: Final = Path(__file__).with_name("kafkas_answers.json.gz")

Answers = Mapping[str, Mapping[str, Answer]]
"""Answers by scenario and request."""


def write(answers: Answers) -> None:
    """Write Kafka's answers."""
    different: dict[str, list[Answer]] = {}
    numbers: dict[str, dict[str, int]] = {}
    for scenario, by_request in answers.items():
        numbers[scenario] = {}
        for request, answer in by_request.items():
            known = different.setdefault(request, [])
            if answer not in known:
                known.append(answer)
            numbers[scenario][request] = known.index(answer)
    data = json.dumps([different, numbers], separators=(",", ":")).encode()
    FILE.write_bytes(gzip.compress(data, mtime=0))


def read() -> Answers:
    """Return what was written."""
    different, numbers = json.loads(gzip.decompress(FILE.read_bytes()))
    return {
        scenario: {request: different[request][number] for request, number in of_scenario.items()}
        for scenario, of_scenario in numbers.items()
    }
