"""Writes docs/kafka-comparison.md from a run's counts and the list of differences."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.kafka_comparison.differences import Listed, listed

_ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = _ROOT / "docs" / "kafka-comparison.md"
COUNTS: Final = Path(__file__).with_name("counts.json")
"""The day of the last comparison of everything, and for each API its answers and how many were the same."""

_HEAD: Final = """\
# Compared with Apache Kafka

`python -m tests.kafka_comparison` sends the same requests to this broker and to Apache Kafka 4.3.1 and compares their
answers field by field: every API served, in every version. Each field of an ordinary request takes border values in the
earliest and the latest version; scripts in `tests/kafka_comparison/scripts/` prepare topics, groups and members and ask
what is wrong, stale, unknown or said twice. Ids, addresses, directories, sizes, texts of errors and times of now must
differ and are replaced by words; throttle times are left out. Not compared: leader epochs before the first, which is 0
in Kafka; records after they expired; what several brokers say to each other.

A difference has a line in `tests/kafka_comparison/differences.tsv` with its reason, or the command fails. A line that
no answer needs fails it too. The command is part of `./test long`; it runs for a few minutes and needs Java. `./test`
compares our answers with those that the last run recorded of Kafka, in the latest version of each API.

`python -m tests.kafka_comparison.cleaned_logs` has both brokers clean the logs of compacted topics and compares what is
left of them, batch by batch, and what searches by time find. Three differences stay: a batch that loses records keeps
its base timestamp here; tombstones whose time has come are a reason for a cleaning here, and wait for new records in
Kafka; the last batch of an idempotent producer goes with its records here, and stays without them in Kafka.
"""


def write_counts(day: str, by_api: Mapping[str, list[int]]) -> None:
    """Keep what a comparison of everything came to."""
    COUNTS.write_text(json.dumps({"day": day, "apis": by_api}, indent=1) + "\n", encoding="utf-8")


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_counts(), *_list()]) + "\n"


def _counts() -> Iterator[str]:
    kept = json.loads(COUNTS.read_text(encoding="utf-8"))
    apis: dict[str, list[int]] = kept["apis"]
    answers, same = (sum(counts[place] for counts in apis.values()) for place in (0, 1))
    yield f"On {kept['day']}: {answers} answers of {len(apis)} APIs, {same} of them the same in every field."
    yield "\n| API | answers | the same |\n| --- | --- | --- |"
    for api in sorted(apis):
        yield f"| {api} | {apis[api][0]} | {apis[api][1]} |"


def _list() -> Iterator[str]:
    yield "\n## Differences\n"
    yield "`*` stands for any text. A field after another error, or of an element that one side lacks, is not listed.\n"
    yield "| API | versions | field | ours | Kafka's | why |\n| --- | --- | --- | --- | --- | --- |"
    for line in listed():
        yield _row(line)


def _row(line: Listed) -> str:
    api = "all" if line.api == "*" else line.api
    cells = [api, line.versions, *(f"`{each}`" for each in (line.field or " ", line.ours, line.theirs)), line.reason]
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
