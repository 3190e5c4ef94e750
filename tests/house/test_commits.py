"""What commits say in their first line."""

import re
import subprocess

import pytest

from tests.house.sources import ROOT

FIRST = "bb07950"
"""Commits up to this one are older than the rule."""
SUBJECT_MAX = 60
_PREFIXED = re.compile(r"\w[\w, -]*: \S")
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
