"""`pqbroker transaction` at a broker with transactions in doubt."""

import asyncio

from tests.broker.conftest import start  # noqa: F401 (fixture)
from tests.broker.services.commits.doubt import bring_back, leave_in_doubt
from tests.broker.services.commits.test_crashes import settled
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)
from tests.cli.shell import Said, run
from tests.support.cli_page import KEYS


async def say(web: Web, *arguments: str) -> Said:  # noqa: F811
    """Run a command in a process of its own, at a node in this one."""
    return await asyncio.to_thread(run, "transaction", *arguments, "--http", str(web.node.server.http_address))


async def test_what_is_unfinished_is_listed(web: Web) -> None:  # noqa: F811
    assert (await say(web, "list", "--unfinished")).output == "no transaction is unfinished\n"
    name = await leave_in_doubt(web, is_stored=False)
    (first, _) = (await say(web, "list", "--unfinished", "--json")).objects
    assert ", ".join(first) in KEYS["transaction list"].replace(" (table, tablet_index, tablet_id, cell)", "")
    lines = (await say(web, "list", "--unfinished")).output.splitlines()
    assert sum(name in line and "tablet 0 of left in cell" in line for line in lines) == 2
    assert (await say(web, "list", "--unfinished", "--state", "open")).status == 2
    await bring_back(web)
    await settled(web)


async def test_rows_in_doubt_are_shown_then_dropped_or_written(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    assert (await say(web, "resolve", name)).status == 2
    assert (await say(web, "resolve", name, "--abort", "--commit", "1")).status == 2
    asked = await say(web, "resolve", name, "--abort")
    assert (asked.status, "log 0, cell 0" in asked.output, "say --yes" in asked.errors) == (2, True, True)
    assert "which is not open; it is committed at timestamp" in asked.output
    refused = await say(web, "resolve", name, "--commit", "1", "--yes")
    assert (refused.status, "or not at all" in refused.errors) == (1, True)
    assert (await say(web, "list", "--resolved")).output == "no transaction is resolved\n"
    done = await say(web, "resolve", name, "--abort", "--yes", "--json")
    assert ", ".join(done.object) == KEYS["transaction resolve"].replace(" (committed, timestamp)", "").replace(
        " (participant, since, bytes)", ""
    )
    assert (done.object["left"], len(done.object["participants"])) == (0, 2)
    await bring_back(web)
    await settled(web)
    assert "its home has committed it" in (await say(web, "list", "--resolved")).output
    (one,) = (await say(web, "list", "--resolved", "--json")).objects
    assert (one["transaction"], one["outcome"], one["principal"]) == (name, "abort", "User:ANONYMOUS")
