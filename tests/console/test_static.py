"""The console's own files without a browser: whose they are, how long, and what must not stand in them."""

import re
from hashlib import sha256

from pqbroker.broker.web.console.files import STATIC

LINES_MAX = 350
VENDOR = STATIC / "vendor"
OWN = [path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents]
_FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|javascript:|https?://", re.IGNORECASE
)
"""What makes text into markup or code, and addresses of others."""
_SVG = 'xmlns="http://www.w3.org/2000/svg"'
"""A name, though it looks like an address."""


def test_vendored_files_are_those_that_were_published() -> None:
    lines = map(str.split, (VENDOR / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir() if path.name != "SHA256SUMS"}
    assert found == sums
    assert {name for name in sums if name.startswith("LICENSE.")} == {
        "LICENSE.htm.txt", "LICENSE.preact.txt", "LICENSE.uplot.txt",
    }  # fmt: skip


def test_own_files_are_short_and_say_what_they_are() -> None:
    assert [path.name for path in OWN if path.read_text().count("\n") > LINES_MAX] == []
    assert [path.name for path in OWN if path.suffix == ".js" and not path.read_text().startswith("// ")] == []


def test_nothing_makes_text_into_markup_and_nothing_is_elsewhere() -> None:
    found = {path.name: _FORBIDDEN.findall(path.read_text().replace(_SVG, "")) for path in OWN}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    """The policy would refuse them."""
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)|<style| style=| on\w+=", page) == []


def test_the_page_names_every_module_so_that_none_waits_for_another() -> None:
    modules = {f"/console/{path.relative_to(STATIC).as_posix()}" for path in STATIC.rglob("*.js")}
    page = (STATIC / "index.html").read_text()
    assert set(re.findall(r'(?:modulepreload" href|module" src)="([^"]+)"', page)) == modules
