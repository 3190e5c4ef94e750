"""Compares rendered answers, and holds what differs against the list of differences, each with its reason."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_name("differences.tsv")
ABSENT: Final = "absent"
Answer = dict[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that the brokers answer differently."""

    api: str
    version: int
    shape: str
    field: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.api} v{self.version} {self.shape}\t{self.field}\t{self.ours}\t{self.theirs}"


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the list. In every column but the versions and the reason `*` stands for any text."""

    api: str
    versions: str
    shape: str
    field: str
    ours: str
    theirs: str
    reason: str

    def covers(self, difference: Difference) -> bool:
        """Return True if the line is about this difference."""
        low, _, high = self.versions.partition("-")
        return (
            int(low) <= difference.version <= int(high or low)
            and _matches(self.api, difference.api)
            and _matches(self.shape, difference.shape)
            and _matches(self.field, difference.field)
            and _matches(self.ours, difference.ours)
            and _matches(self.theirs, difference.theirs)
        )


def listed(path: Path = LIST) -> list[Listed]:
    """Return the list."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        return [Listed(*row) for row in rows]


def compared(api: str, version: int, shape: str, ours: Answer, theirs: Answer) -> Iterator[Difference]:
    """Yield each field that differs; not what follows from another: fields of what is absent or has another error."""
    if "" in ours or "" in theirs:  # a text in the place of an answer
        texts = [answer.get("", "an answer") for answer in (ours, theirs)]
        if texts[0] != texts[1]:
            yield Difference(api, version, shape, "", *texts)
        return
    different = [path for path in ours | theirs if ours.get(path) != theirs.get(path)]
    refused = tuple(path.removesuffix("error_code") for path in different if path.endswith("error_code"))
    absent = tuple(f"{path}." for path in different if (path in ours) != (path in theirs) and path.endswith("]"))
    for path in different:
        follows = path.startswith(absent) or (path.startswith(refused) and not path.endswith("error_code"))
        if not follows and not _is_explained(path, ours, theirs):
            yield Difference(api, version, shape, path, ours.get(path, ABSENT), theirs.get(path, ABSENT))


def _is_explained(path: str, ours: Answer, theirs: Answer) -> bool:
    """Return True if a count differs because of elements that only one side has."""
    start = path.removesuffix("[].count") + "["
    return path.endswith("[].count") and any(
        each.startswith(start) and each.endswith("]") for each in ours.keys() ^ theirs.keys()
    )


_patterns: dict[str, re.Pattern[str]] = {}


def _matches(pattern: str, text: str) -> bool:
    if pattern == "*":
        return True
    compiled = _patterns.get(pattern)
    if compiled is None:
        compiled = _patterns[pattern] = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    return compiled.fullmatch(text) is not None
