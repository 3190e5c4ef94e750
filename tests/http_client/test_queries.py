"""SQL through either client."""

import json
import subprocess
import sys
from http.client import HTTPConnection
from typing import Any

import pytest

from pqbroker.client import ClientError, Column
from pqbroker.testing import Broker
from tests.http_client.conftest import done


async def test_a_query_answers_in_rows_arrow_and_pandas(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create([Column("n", "int64")]))
    await done(table.insert([{"n": 1}, {"n": 2}]))
    query = client.sql(f'SELECT "$row_index", value FROM "{name}"')
    assert await done(query.rows()) == [{"$row_index": n, "value": f'{{"n":{n + 1}}}'} for n in (0, 1)]
    assert (await done(query.arrow())).to_pylist() == [
        {"$row_index": n, "value": b'{"n":%d}' % (n + 1)} for n in (0, 1)
    ]
    assert (await done(query.to_pandas()))["$row_index"].tolist() == [0, 1]
    assert (await done(query.explain()))["rows_read"] == 2


async def test_parameters_are_bound_by_place_or_by_name(client: Any) -> None:
    assert await done(client.sql("SELECT $1 + $2 AS n", params=(1, 2)).rows()) == [{"n": 3}]
    assert await done(client.sql("SELECT $who AS who", params={"who": "it's"}).rows()) == [{"who": "it's"}]


async def test_files_go_with_a_query_and_are_joined_by_name(client: Any) -> None:
    files = {"left.csv": b"id,name\n1,one\n2,two\n", "right.csv": b"id\n2\n"}
    text = "SELECT name FROM files.left.csv a JOIN files.right.csv b USING (id) WHERE id = $1"
    query = client.sql(text, params=[2])
    assert await done(query.with_files(files).rows()) == [{"name": "two"}]
    with pytest.raises(ClientError, match="is no name of a file"):
        await done(client.sql("SELECT 1").with_files({"new.txt": b""}).rows())


async def test_a_refused_query_says_why_and_what_helps(client: Any) -> None:
    for form in ("rows", "arrow", "explain"):
        with pytest.raises(ClientError) as refused:
            await done(getattr(client.sql("DROP TABLE orders"), form)())
        assert (refused.value.code, refused.value.status) == ("NOT_A_QUERY", 400)


async def test_a_query_has_the_time_that_it_is_given(client: Any) -> None:
    with pytest.raises(ClientError) as refused:
        await done(client.sql("SELECT count(*) FROM range(100000000000)", timeout_ms=1).rows())
    assert (refused.value.code, refused.value.status) == ("QUERY_TOO_LONG", 504)


def test_the_synchronous_client_needs_nothing_but_python() -> None:
    script = (
        "import sys\nfrom pqbroker.client import Client\nClient('127.0.0.1:1')\n"
        "print(sorted({'aiohttp', 'pyarrow', 'pandas', 'aiokafka', 'asyncio'} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


async def test_a_query_reads_sorted_tables_at_its_timestamp(client: Any, running: Broker, name: str) -> None:
    columns = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "n", "type": "int64"}]
    _post(running, "/v1/tables", {"path": f"//{name.replace('.', '/')}", "schema": columns})
    first = _post(running, f"/v1/tables/{name}/rows", {"rows": [{"id": 1, "n": 1}]})["timestamp"]
    _post(running, f"/v1/tables/{name}/rows", {"rows": [{"id": 1, "n": 2}]})
    text = f'SELECT n FROM "{name}"'
    assert await done(client.sql(text).rows()) == [{"n": 2}]
    assert await done(client.sql(text, timestamp=first).rows()) == [{"n": 1}]
    assert (await done(client.sql(text, timestamp=first).arrow())).to_pylist() == [{"n": 1}]
    with pytest.raises(ClientError) as refused:
        await done(client.sql("SELECT 1 AS one", timestamp=first).rows())
    assert refused.value.code == "INVALID_QUERY"


def _post(running: Broker, path: str, body: Any) -> Any:
    connection = HTTPConnection(running.http, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()
