"""The console of a broker with several nodes: where cells are, and the restart of all nodes."""

from collections.abc import Iterator

import pytest

from tests.console.browser import Page
from tests.support.several_nodes import SeveralNodes, several_nodes

RESTART = "Restart all nodes one by one"
RESTARTED_S = 90.0
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    settings = {"pqbroker.console.writes": "true", "pqbroker.node.silence.ms": "10000"}
    with several_nodes(tmp_path_factory.mktemp("nodes"), settings) as running:
        yield running


async def test_all_nodes_are_restarted_from_the_page_which_shows_how_far_that_is(
    page: Page, nodes: SeveralNodes
) -> None:
    before = nodes.pids()
    await page.open(f"http://{nodes.http}/#/cells")
    await page.wait_for("This broker has 2 nodes", "Last restart: idle")
    await page.click(RESTART)
    assert nodes.pids() == before  # its name is to be typed first
    await page.type("label input", "restart")
    await page.click(RESTART)
    await page.wait_for("Last restart: running", within_s=RESTARTED_S)
    assert RESTART not in await page.text()
    await page.wait_for("Last restart: done", "2 of 2 nodes", RESTART, within_s=RESTARTED_S)
    assert not {*before.values()} & {*nodes.pids().values()}


async def test_a_page_that_may_change_nothing_has_no_such_button(page: Page, nodes: SeveralNodes) -> None:
    await page.send(
        "Page.addScriptToEvaluateOnNewDocument",
        source="""
            const ask = window.fetch;
            window.fetch = async (path, options) => {
              const answer = await ask(path, options);
              if (!path.startsWith("/v1/rights")) return answer;
              return new Response(JSON.stringify({ ...(await answer.json()), console_writes: false }));
            };
        """,
    )
    await page.open(f"http://{nodes.http}/#/cells")
    await page.wait_for("This broker has 2 nodes", "Last restart")
    assert RESTART not in await page.text()
