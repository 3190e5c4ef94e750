"""A hook of mkdocs: pages that stand beside docs/ become pages of the site, and links between them are rewritten."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md"} | {
    name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
}
"""Files beside docs/, and what they are called in it."""
_LINK = re.compile(r"\[([^]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for name, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site; what is no page of it (a file of the sources) becomes plain text."""
    place = page.file.src_uri
    source = next((name for name, known in PAGES.items() if known == place), f"docs/{place}")

    def target(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        found = PAGES.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(found) is None:
            return match[1]
        way = posixpath.relpath(found, posixpath.dirname(place) or ".")
        return f"[{match[1]}]({way}{match[3] or ''})"

    return _LINK.sub(target, markdown)
