"""Apache Kafka's answers of the last comparison, as data: `test_recorded.py` compares ours with them without Kafka.

Of each API its latest version, and of that no answer with hundreds of fields. A comparison of everything writes them.
"""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.kafka_comparison.differences import Answer
from tests.kafka_comparison.shapes import Case

FILE: Final = Path(__file__).with_name("recorded.jsonl.gz")
_FIELDS_MAX: Final = 60

Played = list[tuple[str, Answer]]


def is_recorded(case: Case) -> bool:
    """Return True if Kafka's answers to the case are kept."""
    return case.version >= case.api.version_max


def write(played: Iterable[tuple[Case, Played]]) -> None:
    """Write the answers of Kafka that are kept."""
    lines = [
        json.dumps([case.name, label, answer], ensure_ascii=False, separators=(",", ":"))
        for case, answers in played
        if is_recorded(case)
        for label, answer in answers
        if len(answer) <= _FIELDS_MAX
    ]
    FILE.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def read() -> dict[tuple[str, str], Answer]:
    """Return what was written, by names of cases and labels."""
    found = {}
    for line in gzip.decompress(FILE.read_bytes()).decode().splitlines():
        name, label, answer = json.loads(line)
        found[name, label] = answer
    return found
