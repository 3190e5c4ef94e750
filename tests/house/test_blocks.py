"""Every block of commands or of a program in README and docs is run by a test, or stands here with the reason."""

import re
from collections.abc import Mapping

import pytest

from tests.cli.test_documents import RUN
from tests.house.sources import ROOT

LANGUAGES = ("sh", "python", "java", "go")
"""Blocks that a reader types or runs; a block without a language shows a form or an output."""
TESTS: Mapping[str, str] = {
    "README.md": "tests/house/test_readme.py",
    "docs/testing.md": "tests/fixture/test_page.py",
    "docs/client.md": "tests/cli/test_documents.py",
    "docs/exactly-once.md": "tests/cli/test_documents.py",
    **{f"docs/{page}": "tests/cli/test_documents.py" for page in RUN},
}
"""Pages all of whose commands run, and the test that runs them."""
NOT_RUN: Mapping[str, str] = {
    "docs/access-rules.md": "rules need a broker with users; tests/cli/test_acl.py makes the same calls",
    "docs/cli.md": "written from the commands; tests/cli/test_every_command.py runs each of them",
    "docs/nodes.md": "it serves until it is stopped; tests/broker/node starts brokers of several nodes",
    "docs/operate.md": "damages and stops a broker; tests/doctor/salvaging and tests/cli/test_backup.py do the same",
    "docs/performance.md": "a benchmark takes minutes",
    "docs/pipeline.md": "jobs of Spark; tests/spark runs each with its options",
    "docs/security.md": "hosts and passwords of the reader's own; tests/cli/test_security.py makes the same calls",
}
"""Pages with blocks that no test runs as they stand, and why."""


PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run_or_the_reason_is_known(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    has_blocks = re.search(rf"^```({'|'.join(LANGUAGES)})$", text, re.MULTILINE) is not None
    assert has_blocks == (page in TESTS or page in NOT_RUN), f"{page} is to stand in one of the tables, or in none"
    assert not (page in TESTS and page in NOT_RUN)


def test_the_tests_exist() -> None:
    assert [test for test in TESTS.values() if not (ROOT / test).is_file()] == []
