"""What the documents name is there."""

import re

import pytest

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import declarations
from pqbroker.conf.topic import TopicConfig
from tests.house.sources import ROOT

DOCUMENTS = (
    "ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/operate.md", "docs/performance.md", "docs/testing.md",
    "docs/troubleshooting.md",
)  # fmt: skip
_FILE = re.compile(r"`([\w/.*]+\.py|[\w/]+/)`")
_SETTING = re.compile(r"`((?:pqbroker|log|num|message|max|socket|auto|advertised)\.[a-z.]+[a-z])`")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_and_folders_that_a_document_names_are_there(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [name for name in _FILE.findall(text) if not any(ROOT.glob(f"**/{name.rstrip('/')}"))] == []


@pytest.mark.parametrize("document", [*DOCUMENTS, "docs/on-disk.md"])
def test_settings_that_a_document_names_are_declared(document: str) -> None:
    known = {*declarations(BrokerSettings), *declarations(TopicConfig)}
    text = (ROOT / document).read_text(encoding="utf-8")
    assert set(_SETTING.findall(text)) - known - {"pqbroker.testing.broker"} == set()
