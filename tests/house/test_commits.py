"""What commits say in their first line."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.house.sources import ROOT

FIRST = "bb07950"
"""Commits up to this one are older than the rule."""
SUBJECT_MAX = 60
_PREFIXED = re.compile(r"\w[\w/, -]*: \S")
_EXCEPTIONS = {
    "benchmarks: measure commits by their own harness, count calls",
    "node: one attribute says which opening of the cell is current",
    "house: sizes, levels, parameters, rooms and subjects as tests",
    "settings: new names for renamed things, earlier ones accepted",
    "words: topic, producer, pool; row sets and segment emptying; one value a constant",
}


@pytest.fixture
def subjects() -> list[str]:
    command = ["git", "log", "--no-merges", "--format=%s", f"{FIRST}..HEAD"]
    try:
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git, or not its history")
    return told.stdout.splitlines()


def test_a_subject_is_short(subjects: list[str]) -> None:
    assert [subject for subject in subjects if len(subject) > SUBJECT_MAX and subject not in _EXCEPTIONS] == []


def test_a_subject_begins_with_the_part_that_changes(subjects: list[str]) -> None:
    assert [subject for subject in subjects if not _PREFIXED.match(subject)] == []


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("fetch: park until min_bytes\n\nWhy.\n", 0), ("# a comment\nfetch: park until min_bytes\n", 0),
        (f"fetch: {'ä' * (SUBJECT_MAX - 7)}\n", 0), (f"fetch: {'a' * (SUBJECT_MAX - 6)}\n", 1),
        ("park until min_bytes\n", 1), ("Merge branch 'main'\n", 0),
    ],
)  # fmt: skip
def test_the_hook_refuses_what_the_rules_refuse(message: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "message").write_text(message, encoding="utf-8")
    ran = subprocess.run([ROOT / "tests" / "support" / "hooks" / "commit-msg", tmp_path / "message"], check=False)
    assert ran.returncode == status
