"""Each version byte of each stored form, changed to one that no version of ours writes: it costs what the form holds.

The forms are found by the second opinion that also checks docs/on-disk.md, so a new one is among them by itself.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from crc32c import crc32c

from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.mending.facts_copy import FACTS_COPY, encode_copy
from pqbroker.storage.disk.rocks_index import RocksIndex
from tests.faults.flipped_index import Verdict, Written, build, judge
from tests.support.on_disk import explain_row
from tests.support.on_disk_page import index_rows

pytestmark = pytest.mark.spec("J.2")

NEWER = 100
_VERSION_FIELDS = ("format", "form", "kind")
_LOG_PAYLOAD_AT = 5
"""In the index row of a small blob, behind kind and checksum."""
FIRST_TOPIC_TABLET, FIRST_COORDINATOR = 1 << 16, 16
SCHEME, COORDINATOR, TOPIC, CELL = "scheme", "coordinator", "topic", "cell"
FORMS = {
    "cell cell fact format",
    "scheme tablet format", "scheme block format", "scheme blob kind 0 here", "scheme log format",
    "coordinator tablet format", "coordinator block format", "coordinator blob kind 0 here", "coordinator log format",
    "topic tablet format", "topic block format", "topic blob kind 0 here", "topic blob kind 1 in a segment",
    "topic partition form 1 value", "topic partition format", "topic producer form 1 value", "topic producer format",
    "topic consumer form 1 value", "topic consumer format", "topic cleaning form 1 value", "topic cleaning format",
    "topic head blob form 1 value",
    "topic head blob form 2 chain", "topic body blob form 2 chain",
}  # fmt: skip
"""Rows that a start needs. Keep flags and barriers, which it does not read, are in test_blobstorage.py."""


@dataclass(frozen=True, slots=True)
class VersionByte:
    """A version byte: the row it is in, and where; `is_log`: it is within the payload of a blob, under a checksum."""

    key: bytes
    row: bytes
    position: int
    is_log: bool = False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written, dict[str, VersionByte]]:
    path = tmp_path_factory.mktemp("versions") / "data"
    written = build(path)
    return path, written, version_bytes(path)


def test_every_form_is_met(whole: tuple[Path, Written, dict[str, VersionByte]]) -> None:
    assert set(whole[2]) == FORMS


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_version_that_is_not_known_costs_what_the_form_holds(
    whole: tuple[Path, Written, dict[str, VersionByte]], form: str, tmp_path: Path
) -> None:
    path, written, places = whole
    copy = tmp_path / "data"
    shutil.copytree(path, copy)
    change(copy, places[form])
    verdict = judge(copy, written, starts=1)
    owner = form.split(" ")[0]
    if owner in (CELL, SCHEME):
        expect_refusal(verdict)
    else:
        expect_in_part(verdict, "group-" if owner == COORDINATOR else "topic-")


def version_bytes(path: Path) -> dict[str, VersionByte]:
    """One place of each version byte, by whose it is and what form."""
    found: dict[str, VersionByte] = {}
    rows = index_rows(path)
    logs = {_tablet(key) for key, _ in rows if key[:1] == b"b"}
    for key, row in rows:
        explained = explain_row(key, row)
        owner, position = _owner(key), 0
        if owner == COORDINATOR and _tablet(key) not in logs:
            continue  # it has no groups
        for name, raw, meaning in explained.value.found:
            if name in _VERSION_FIELDS:
                told = meaning if name != "format" else ""
                found.setdefault(f"{owner} {explained.kind} {name} {told}".strip(), VersionByte(key, row, position))
            position += len(raw)
        if explained.kind == "blob" and owner in (SCHEME, COORDINATOR) and row[0] == 0:
            found.setdefault(f"{owner} log format", VersionByte(key, row, _LOG_PAYLOAD_AT, is_log=True))
    return found


def _owner(key: bytes) -> str:
    """Whose row it is, by the tablet in its key."""
    if key[:1] in b"ns" or key[:2] == b"rC":
        return CELL
    tablet = _tablet(key)
    if tablet >= FIRST_TOPIC_TABLET:
        return TOPIC
    return COORDINATOR if tablet >= FIRST_COORDINATOR else SCHEME


def _tablet(key: bytes) -> int:
    start = 1 if key[:1] == b"b" else 2
    return int.from_bytes(key[start : start + 8], "big")


def change(path: Path, place: VersionByte) -> None:
    """Have the index say another version; all checksums are right."""
    row = bytearray(place.row)
    row[place.position] = NEWER
    if place.is_log:
        row[1:_LOG_PAYLOAD_AT] = crc32c(row[_LOG_PAYLOAD_AT:]).to_bytes(4, "big")
    (found,) = path.glob("index-*")
    index = RocksIndex(found)
    index.open(create=False)
    changes = IndexChanges()
    changes.put(place.key, bytes(row))
    index.write(changes, 1)
    index.close()


def expect_refusal(verdict: Verdict) -> None:
    assert "newer version" in verdict.refused or "damaged" in verdict.refused, verdict


def expect_in_part(verdict: Verdict, whose: str) -> None:
    assert not verdict.refused, verdict
    assert verdict.unreadable
    assert all(place.startswith(whose) for place in verdict.unreadable), verdict
    assert len({place.split("-")[1] for place in verdict.unreadable}) == 1 or whose == "group-", "more than one topic"


def _another_format(path: Path) -> None:
    text = json.dumps({**json.loads((path / "cell").read_text()), "format": NEWER}).encode()
    (path / FACTS_COPY).write_bytes(encode_copy(text))
    (path / "cell").write_bytes(text)


def _another_identity(path: Path) -> None:
    (path / "blobs" / "pool").write_text("pqbroker store 2 of no cell\n")


@pytest.mark.parametrize(
    ("damage", "told"), [(_another_format, "newer version"), (_another_identity, "is not pool main of this cell")]
)
def test_a_directory_of_another_form_is_refused(
    whole: tuple[Path, Written, dict[str, VersionByte]], tmp_path: Path, damage: Callable[[Path], None], told: str
) -> None:
    path, written, _ = whole
    copy = tmp_path / "data"
    shutil.copytree(path, copy)
    damage(copy)
    assert told in judge(copy, written, starts=1).refused


def test_a_segment_record_of_another_form_costs_its_blob(
    whole: tuple[Path, Written, dict[str, VersionByte]], tmp_path: Path
) -> None:
    path, written, _ = whole
    copy = tmp_path / "data"
    shutil.copytree(path, copy)
    segment = min(copy.glob("blobs/*.segment"))
    segment.write_bytes(b"PQB2" + segment.read_bytes()[4:])
    assert len(judge(copy, written, starts=1).unreadable) == 1
