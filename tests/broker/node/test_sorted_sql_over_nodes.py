"""SQL over sorted tables of a broker of two nodes: tablets are at both, the query runs at the first."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.broker.node.test_http_over_nodes import call, is_served_by_both, sql
from tests.broker.node.test_http_over_nodes import spread as spread_topic
from tests.broker.node.test_sorted_over_nodes import PATIENCE_S, SPAN, TABLETS, ask, spread, write
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

KEYS = [SPAN * index + number for index in range(TABLETS) for number in range(3)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    with several_nodes(tmp_path_factory.mktemp("nodes"), {"pqbroker.node.silence.ms": "10000"}) as running:
        yield running


def test_rows_of_both_nodes_are_read(nodes: SeveralNodes) -> None:
    fill(nodes, "read")
    assert sql(nodes, "SELECT k, v FROM read ORDER BY k") == [{"k": key, "v": f"{key}"} for key in KEYS]
    some = f"SELECT count(*) AS n FROM read WHERE k BETWEEN 1 AND {2 * SPAN}"
    assert sql(nodes, some) == [{"n": 2 + 3 + 1}]
    for command in ("unmount", "mount"):  # what is in memory is written to files
        assert call(nodes, f"tables/read/{command}", {})[0] == 200
    changed = SPAN * (TABLETS - 1)
    assert write(nodes, "read", {changed: "new"})[0] == 200
    expected = [{"k": key, "v": "new" if key == changed else f"{key}"} for key in KEYS]
    assert sql(nodes, "SELECT k, v FROM read ORDER BY k") == expected


def test_tables_of_either_node_are_joined_with_each_other_and_with_topics(nodes: SeveralNodes) -> None:
    at = fill(nodes, "joined")
    of_node = {number: [index for index, node in at.items() if node == number] for number in (1, 2)}
    first, second = (f'(SELECT * FROM joined WHERE "$tablet_index" IN {tuple(of_node[n] * 2)})' for n in (1, 2))
    text = f"SELECT count(*) AS n FROM {first} AS a JOIN {second} AS b ON a.k % {SPAN} = b.k % {SPAN}"
    assert sql(nodes, text) == [{"n": 3 * len(of_node[1]) * len(of_node[2])}]
    spread_topic(nodes, "orders")
    records = [{"value": f"{key}", "partition": number % 4} for number, key in enumerate(KEYS)]
    assert call(nodes, "topics/orders/records", {"records": records})[0] == 201
    text = "SELECT count(*) AS n, sum(k) AS keys FROM joined JOIN orders ON joined.v = orders.value"
    assert sql(nodes, text) == [{"n": len(KEYS), "keys": sum(KEYS)}]


def test_a_query_reads_at_its_transaction(nodes: SeveralNodes) -> None:
    fill(nodes, "earlier")
    _, begun = call(nodes, "transactions", {"timeout_ms": 60_000})
    for index in range(TABLETS):
        assert write(nodes, "earlier", {SPAN * index: "later"})[0] == 200
    text = "SELECT count(*) AS n FROM earlier WHERE v = 'later'"
    assert sql(nodes, text) == [{"n": TABLETS}]
    status, told = call(nodes, "sql", {"query": text, "transaction": begun["transaction"]})
    assert (status, told) == (200, {"n": 0}), told


def test_an_unmounted_tablet_is_named(nodes: SeveralNodes) -> None:
    at = fill(nodes, "unmounted")
    away = next(index for index, node in at.items() if node == 2)
    one = {"first_tablet_index": away, "last_tablet_index": away}
    assert call(nodes, "tables/unmounted/unmount", one)[0] == 200
    status, told = call(nodes, "sql", {"query": "SELECT count(*) FROM unmounted"})
    assert (status, told["error"]["code"]) == (409, "WRONG_STATE"), told


def test_queries_beside_transfers_between_nodes_see_one_moment(nodes: SeveralNodes) -> None:
    """Each transaction moves a count between tablets of both nodes: a query that saw two moments would find another
    sum."""
    at = spread(nodes, "moved")
    pair = [SPAN * next(index for index, node in at.items() if node == number) for number in (1, 2)]
    assert write(nodes, "moved", dict.fromkeys(pair, "100"))[0] == 200
    is_over, written = threading.Event(), [0]

    def has_gone_on(before: int) -> bool:
        return written[0] > before + 2 or not thread.is_alive()

    def transfer() -> None:
        while not is_over.is_set():
            number = written[0] % 50
            status, told = write(nodes, "moved", {pair[0]: f"{100 + number}", pair[1]: f"{100 - number}"})
            assert status == 200, told
            written[0] += 1

    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        for _ in range(10):
            begun_at = written[0]
            assert sql(nodes, "SELECT sum(CAST(v AS INTEGER)) AS n FROM moved") == [{"n": 200}]
            wait_until(partial(has_gone_on, begun_at), "transfers", PATIENCE_S)
    finally:
        is_over.set()
        thread.join()
    assert written[0] > 20


def fill(nodes: SeveralNodes, name: str) -> dict[int, int]:
    """Create a table of which both nodes run tablets, with rows in each; return the node of each tablet."""
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    at = spread(nodes, name)
    rows: list[dict[str, Any]] = [{"k": key, "v": f"{key}"} for key in KEYS]
    status, told = ask(nodes, "POST", f"tables/{name}/rows", {"rows": rows})
    assert status == 200, told
    return at
