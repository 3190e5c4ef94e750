"""The console's files, as they are served: read once, each with a type and a tag. `static/vendor` is others' work."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
_TYPES = {
    ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain",
}  # fmt: skip
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing from elsewhere, no script or style within the page, no page around it."""


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """One file; the tag changes with its bytes."""

    content_type: str
    tag: str
    body: bytes


@cache
def console_files() -> Mapping[str, ConsoleFile]:
    """Return the files by path below `static`. The first call reads them all: some 300 KB, so not on the loop."""
    paths = [path for path in STATIC.rglob("*") if path.suffix in _TYPES]
    return {path.relative_to(STATIC).as_posix(): _read(path) for path in paths}


def _read(path: Path) -> ConsoleFile:
    body = path.read_bytes()
    return ConsoleFile(_TYPES[path.suffix], sha256(body).hexdigest()[:32], body)
