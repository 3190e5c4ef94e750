"""Small pictures of the console's pages, to compare with stored ones: python -m tests.console.pictures [DIRECTORY]

Draws all of them again into tests/data/console, or into DIRECTORY to look at them first. What differs from run to run
is taken out: numbers are 0, charts are blank, and the text is in a font that is stored beside the pictures.
"""

import asyncio
import base64
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from tests.console.browser import Page, browser
from tests.console.crowded import PAGES, PHONE, crowded_broker

REDRAW = "python -m tests.console.pictures"
STORED = Path(__file__).resolve().parents[1] / "data" / "console"
WINDOWS = {"wide": (1280, 900, 0.125), "phone": (*PHONE, 0.25)}
"""Width and height in pixels, and the scale of the picture."""
SCHEMES = ("light", "dark")
UNLIKE_AT = 40
"""A pixel of a picture differs if one of its colours does by more than this, of 255."""
UNLIKE_MAX = 20
"""Pixels that may differ: browsers draw the edges of letters in their own ways."""
_SHOWN_WITHIN_S = 60.0
_FONT = base64.b64encode((STORED / "text.woff2").read_bytes()).decode()
_STYLE = """
* { font-family: Picture !important; transition: none !important; animation: none !important; caret-color: transparent }
svg, canvas, .uplot { visibility: hidden !important }
"""
_COUNT = """(() => {
  const ask = fetch;
  let asked = 0, waiting = 0;
  window.fetch = async (...request) => {
    asked += 1, waiting += 1;
    try {
      const answer = await ask(...request);
      await answer.clone().arrayBuffer();
      return answer;
    } finally {
      waiting -= 1;
    }
  };
  window.isFilled = () => asked > 0 && waiting === 0;
})()"""
"""Runs in each document before its own scripts. `isFilled()`: the page has every answer that it asked for."""
_FIGURES = (
    "[...document.querySelectorAll('.tile b')].every((one) => one.innerText !== '–') && "
    "[...document.querySelectorAll('.chart')].every((one) => one.querySelector('.uplot'))"
)
"""True once the figures have come that a page hears of."""
_FRAMES = "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(isFilled()))))"
_STILL = """(async () => {
  window.live = [...document.body.children];
  for (const shown of live) shown.replaceWith(shown.cloneNode(true));
  const face = new FontFace("Picture", "url(data:font/woff2;base64,%s)");
  document.fonts.add(await face.load());
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`%s`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  for (const row of document.querySelectorAll("tr"))
    if (/^(info|warning|error)$/.test(row.cells[1]?.innerText)) row.remove();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode;
    const id = /(?<![\\w.-])[\\w-]{22}(?![\\w.-])/g;
    const level = text.data.replace(/\\/tmp\\/\\S+/g, "/data").replace(id, "id").replace(/\\d[\\d\\s.,:]*|^–$/g, "0 ");
    if (level !== text.data) text.data = level;
  }
  scrollTo(0, 0);
})()"""
"""It replaces the page by a still copy, in which numbers are 0, paths and ids are alike, and the log has no lines."""
_LIVE = "document.body.replaceChildren(...live)"
"""It puts the page itself back."""
_COMPARE = """(async (one, other) => {
  const colours = async (data) => {
    const image = await createImageBitmap(await (await fetch("data:image/webp;base64," + data)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    return [image.width, image.height, canvas.getImageData(0, 0, image.width, image.height).data];
  };
  const [[width, height, left], [storedWidth, storedHeight, right]] = [await colours(one), await colours(other)];
  if (width !== storedWidth || height !== storedHeight) return -1;
  let count = 0;
  for (let at = 0; at < left.length; at += 4)
    count += [0, 1, 2].some((part) => Math.abs(left[at + part] - right[at + part]) > %d) ? 1 : 0;
  return count;
})('%s', '%s')"""


async def drawn(page: Page, home: str, address: str) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the name and the picture, in WebP, of a page in each window and scheme of colours."""
    await page.send("Page.setBypassCSP", enabled=True)
    counting = await page.send("Page.addScriptToEvaluateOnNewDocument", source=_COUNT)
    name = re.sub(r"\W+", "-", address.removeprefix("#/")).strip("-") or "overview"
    await page.open("about:blank")
    await page.open(home + address)
    await page.wait_for(PAGES[address], within_s=_SHOWN_WITHIN_S)
    for window, (width, height, scale) in WINDOWS.items():
        await page.resize(width, height)
        await _make_still(page)
        for scheme in SCHEMES:
            await page.prefer(scheme)
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}
            shot = await page.send("Page.captureScreenshot", format="webp", quality=90, clip=clip)
            yield f"{name}-{window}-{scheme}", base64.b64decode(shot["data"])
        await page.look(_LIVE)
    await page.send("Page.removeScriptToEvaluateOnNewDocument", identifier=counting["identifier"])


async def _make_still(page: Page) -> None:
    """Take out what differs from run to run once all of a page is shown, until it is put back."""
    await page.wait_until(f"isFilled() && {_FIGURES}", within_s=_SHOWN_WITHIN_S)
    while not await page.look(_FRAMES):
        pass
    await page.look(_STILL % (_FONT, _STYLE))


def stored(name: str) -> bytes | None:
    """Return the stored picture; None if there is none."""
    file = STORED / f"{name}.webp"
    return file.read_bytes() if file.exists() else None


async def unlike(page: Page, picture: bytes, other: bytes | None) -> str:
    """Return how a picture differs from a stored one; empty if they are alike. `page` is a tab that compares."""
    if other is None:
        return "there is no picture of it"
    one, two = (base64.b64encode(each).decode() for each in (picture, other))
    count = await page.look(_COMPARE % (UNLIKE_AT, one, two))
    if count < 0:
        return "the picture has another size"
    return f"{count} pixels differ" if count > UNLIKE_MAX else ""


async def main(directory: Path) -> None:
    """Draw all pictures into a directory."""
    with tempfile.TemporaryDirectory() as scratch:
        async with crowded_broker(Path(scratch, "data")) as running, browser() as chromium, chromium.page() as page:
            for address in PAGES:
                async for name, picture in drawn(page, f"http://{running.http}/", address):
                    await asyncio.to_thread((directory / f"{name}.webp").write_bytes, picture)


if __name__ == "__main__":
    DIRECTORY = Path(sys.argv[1]) if len(sys.argv) > 1 else STORED
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(DIRECTORY))
