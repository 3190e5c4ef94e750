"""The page of sorted tables names every refusal of theirs, with its status over HTTP."""

import re

import pytest

from pqbroker.broker.web.resources import sql
from pqbroker.broker.web.routing.table_problems import _STATUSES, yt_number
from pqbroker.tables.sorted.write_refusals import _LIMITS
from tests.house.sources import ROOT

_FOLDERS = ("broker/services/sorted_tables", "tables/serving", "tables/sorted", "tables/sorted/picking")
_RAISED = re.compile(r'TableError\(\s*"([A-Z_]+)"')
_ROW = re.compile(r"^\| (.*?) \| (\d{3}) \|", re.MULTILINE)
_CODE = re.compile(r"`([A-Z_]+)`")
_ELSEWHERE = {"CANNOT_MOVE", "NO_TABLE"}
"""Refusals of every table, which docs/tables.md has."""
_OF_FEEDS = {"FEED_MOVED", "INVALID_ORIGINS"}
"""Refusals of the broker's own writer, and of the request that makes one."""


def listed(page: str = "sorted-tables.md") -> dict[str, tuple[int, int | None]]:
    """Status and number by code, as a page has them."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found: dict[str, tuple[int, int | None]] = {}
    for codes, status in _ROW.findall(text[text.index("## Errors") :]):
        number = re.search(r"\((\d+)\)", codes)
        found |= {code: (int(status), int(number[1]) if number else None) for code in _CODE.findall(codes)}
    return found


def test_every_refusal_of_sorted_tables_is_on_their_page() -> None:
    sources = [file.read_text(encoding="utf-8") for folder in _FOLDERS for file in (ROOT / folder).glob("*.py")]
    raised = {code for source in sources for code in _RAISED.findall(source)} | _LIMITS.keys()
    assert len(raised) > 10
    assert raised - listed().keys() - _ELSEWHERE - _OF_FEEDS == set()


def test_every_refusal_of_transactions_is_on_their_page() -> None:
    folders = ("broker/services/commits", "broker/services/transactions")
    sources = [file.read_text(encoding="utf-8") for folder in folders for file in (ROOT / folder).glob("*.py")]
    raised = {code for source in sources for code in _RAISED.findall(source)}
    assert len(raised) > 8
    others = {"INVALID_ROW", "NOT_SORTED", "TABLET_BUSY", "TABLE_CHANGED"}  # of the rows: the pages of tables have them
    assert raised - listed("transactions.md").keys() == others


def test_every_refusal_of_queues_is_on_their_page() -> None:
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "broker/services/queues").glob("*.py")]
    sources.append((ROOT / "tables/queues.py").read_text(encoding="utf-8"))
    raised = {code for source in sources for code in _RAISED.findall(source)}
    assert raised - listed("queues.md").keys() == {"NO_MOUNTED_TABLETS", "SORTED_TABLE"} & raised


@pytest.mark.parametrize("page", ["sorted-tables.md", "transactions.md", "queues.md"])
def test_the_page_has_status_and_number_of_each_refusal(page: str) -> None:
    known, statuses = listed(page), {**sql._STATUSES, **_STATUSES}
    assert known == {code: (statuses.get(code, 400), yt_number(code)) for code in known}
