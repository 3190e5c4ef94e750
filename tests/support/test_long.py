"""The runs of `./test long`: each is there, and its result has one place."""

import importlib.util

import pytest

from tests.long import PAGE, RUNS, noted


@pytest.mark.parametrize("command", RUNS.values())
def test_every_run_is_a_module(command: str) -> None:
    assert importlib.util.find_spec(command.split()[0])


def test_a_result_takes_the_place_of_the_one_before_and_a_new_one_comes_last() -> None:
    page = PAGE.read_text(encoding="utf-8")
    once = noted(page, "tests.new --count 5", "a result with a | in it")
    assert once == page + "| `python -m tests.new --count 5` | a result with a / in it |\n"
    assert noted(once, "tests.ne", "b") == once + "| `python -m tests.ne` | b |\n"
    assert noted(once, "tests.new --count 9", "b") == page + "| `python -m tests.new --count 9` | b |\n"


def test_results_stand_at_the_end_of_the_page() -> None:
    last = PAGE.read_text(encoding="utf-8").rstrip("\n").splitlines()[-1]
    assert last.startswith("| `python -m "), "a new row would not be in the table"
