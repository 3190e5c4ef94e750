"""HTTP of a broker of two nodes: the first has it, and the second serves what lies there."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.client import Client
from pqbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.broker.node.test_groups_over_nodes import PARTITIONS, PATIENCE_S, at_node, leaders
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    with several_nodes(tmp_path_factory.mktemp("nodes"), {"pqbroker.node.silence.ms": "10000"}) as running:
        yield running


def test_records_for_partitions_of_both_nodes_are_written_and_read(nodes: SeveralNodes) -> None:
    away = spread(nodes, "written")
    asked = [{"value": f"{number}", "partition": number % PARTITIONS} for number in range(20)]
    status, told = call(nodes, "topics/written/records", {"records": asked})
    assert (status, told["offsets"]) == (
        201, [{"partition": number % PARTITIONS, "offset": number // PARTITIONS} for number in range(20)]
    )  # fmt: skip
    for index in range(PARTITIONS):
        status, told = call(nodes, f"topics/written/records?partition={index}")
        assert (status, told["end_offset"]) == (200, 5), told
        assert [record["value"] for record in told["records"]] == [f"{one}" for one in range(index, 20, PARTITIONS)]
        status, told = call(nodes, f"topics/written/partitions/{index}")
        assert (status, told["end_offset"], told["written"]["records"]) == (200, 5, 5)
    assert away
    described = call(nodes, "topics/written")[1]
    assert [row["end_offset"] for row in described["partitions"]] == [5] * PARTITIONS
    assert described["size_bytes"] == sum(row["size_bytes"] for row in described["partitions"])
    for query in ("contains=writ", "contains=writ&sort=records", "limit=1&after=writte"):
        (listed,) = call(nodes, f"topics?{query}")[1]["topics"]
        assert (listed["name"], listed["record_count"], listed["written_count"]) == ("written", 20, 20)
        assert listed["size_bytes"] == described["size_bytes"]


def test_cleaning_is_shown_by_the_node_of_each_partition(nodes: SeveralNodes) -> None:
    away = spread(nodes, "compacted")
    assert call(nodes, "topics/compacted/configs", {"configs": {"cleanup.policy": "compact"}}, "PATCH")[0] == 200
    for index in range(PARTITIONS):
        write(nodes, "compacted", index, "x", key="k")
    told = call(nodes, "topics/compacted/cleaning")[1]
    assert [row["partition"] for row in told["partitions"]] == list(range(PARTITIONS))
    assert len({(row["state"], row["text"]) for row in told["partitions"]}) == 1, told
    status, asked = call(nodes, "topics/compacted/clean", {"partitions": away, "dry_run": True})
    assert (status, [row["partition"] for row in asked["partitions"]]) == (202, away)
    assert all(row["head_bytes"] > 0 for row in asked["partitions"])
    assert call(nodes, "topics/compacted/clean", {"dry_run": True})[1]["error"]["code"] == "OTHER_NODE"


def test_each_node_has_the_log_directories_of_its_own_partitions(nodes: SeveralNodes) -> None:
    away = spread(nodes, "directories")
    with Cluster(str(at_node(nodes, 1)["bootstrap.servers"])) as cluster:
        assert set(cluster.nodes()) == {1, 2}
        for node in (1, 2):
            answer = cluster.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node)
            found = [
                one.partition_index for result in answer.results for topic in result.topics
                if topic.name == "directories" for one in topic.partitions
            ]  # fmt: skip
            assert sorted(found) == [index for index in range(PARTITIONS) if (index in away) is (node == 2)]
            assert all(str(nodes.directory) in result.log_dir for result in answer.results)


def test_nothing_is_written_where_one_record_is_refused(nodes: SeveralNodes) -> None:
    away = spread(nodes, "refused")
    here = next(index for index in range(PARTITIONS) if index not in away)
    asked = [{"value": "x", "partition": here}, {"value": "y" * 1_200_000, "partition": away[0]}]
    assert call(nodes, "topics/refused/records", {"records": asked})[0] == 413
    for index in (here, away[0]):
        assert call(nodes, f"topics/refused/records?partition={index}")[1]["records"] == []


def test_a_partition_of_the_other_node_is_followed(nodes: SeveralNodes) -> None:
    away = spread(nodes, "followed")
    path = f"topics/followed/records?follow=true&partition={away[0]}&limit=3"
    with open_stream(nodes, path) as stream:
        for number in range(3):
            write(nodes, "followed", away[0], f"{number}")
            assert json.loads(stream.readline())["value"] == f"{number}"
        assert stream.read() == b""


def test_partitions_of_the_other_node_are_searched(nodes: SeveralNodes) -> None:
    away = spread(nodes, "searched")
    for index in away:
        write(nodes, "searched", index, f"needle {index}")
    body = json.dumps({"text": "needle", "partitions": away}).encode()
    with open_stream(nodes, "topics/searched/search", body) as stream:
        lines = [json.loads(line) for line in stream]
    assert sorted(line["match"]["partition"] for line in lines if "match" in line) == away
    assert lines[-1]["end"]["matches"] == len(away)
    status, refused = call(nodes, "topics/searched/search", {"regex": "(", "partitions": away})
    assert (status, refused["error"]["code"]) == (400, "INVALID_SEARCH"), refused


def test_a_topic_of_both_nodes_is_searched_whole(nodes: SeveralNodes) -> None:
    spread(nodes, "sought")
    values = write_everywhere(nodes, "sought", 40)
    lines = search(nodes, "sought", {"text": "needle"})
    assert list(lines[0]) == ["progress"]
    assert lines[0]["progress"]["next_offsets"] == {str(index): 0 for index in range(PARTITIONS)}
    end = lines[-1]["end"]
    assert sorted(line["match"]["value"] for line in lines if "match" in line) == values
    assert (end["reason"], end["matches"], end["records"], end["offsets"], end["offsets_total"]) == ("end", *[40] * 4)
    assert end["next_offsets"] == {}
    status, refused = call(nodes, "topics/sought/search", {"regex": "("})
    assert (status, refused["error"]["code"]) == (400, "INVALID_SEARCH"), refused


def test_a_search_of_both_nodes_keeps_its_limit_and_is_continued(nodes: SeveralNodes) -> None:
    spread(nodes, "limited")
    values = write_everywhere(nodes, "limited", 40)
    found: list[str] = []
    offsets: dict[str, int] = {}
    while len(found) < len(values):
        lines = search(nodes, "limited", {"text": "needle", "limit": 7, **({"offsets": offsets} if offsets else {})})
        found += [line["match"]["value"] for line in lines if "match" in line]
        end = lines[-1]["end"]
        offsets = end["next_offsets"]
        assert (end["reason"], end["matches"]) in (("matches", 7), ("end", len(values) % 7)), end
    assert sorted(found) == values


def test_rows_of_tables_of_the_other_node_are_inserted_and_read(nodes: SeveralNodes) -> None:
    table = make_table_away(nodes, "ordered")
    batch = {"rows": [{"a": 5}, {"a": 6}], "session": "s", "sequence": 1}
    status, told = call(nodes, f"tables/{table}/rows", batch)
    assert status == 200, told
    assert told["tablets"] == [{"tablet_index": 0, "first_row_index": 0, "row_count": 2}]
    assert call(nodes, f"tables/{table}/rows", batch)[1]["duplicate"]
    assert [row["a"] for row in call(nodes, f"tables/{table}/rows")[1]["rows"]] == [5, 6]
    status, refused = call(nodes, f"tables/{table}/rows", {"rows": [{"b": 1}]})
    assert (status, refused["error"]["code"]) == (400, "INVALID_ROW"), refused


def test_counts_of_tablets_of_tables_come_from_their_nodes(nodes: SeveralNodes) -> None:
    table = make_table_away(nodes, "counted")
    assert call(nodes, f"tables/{table}/rows", {"rows": [{"a": 5}, {"a": 6}]})[0] == 200
    (tablet,) = call(nodes, f"tables/{table}/tablets")[1]["tablets"]
    assert (tablet["total_row_count"], tablet["node"], tablet["state"]) == (2, 2, "mounted")
    assert tablet["statistics"]["disk_space"] > 0
    assert json.loads(command("table", "describe", f"//{table}", "--json", "--http", nodes.http))["tablets"] == [tablet]
    (shown,) = call(nodes, f"tree//{table}/@tablets")[1]
    assert (shown["node"], shown["statistics"], "total_row_count" in shown) == (2, {}, False)


def test_a_topic_of_both_nodes_is_followed_whole(nodes: SeveralNodes) -> None:
    spread(nodes, "tailed")
    values = write_everywhere(nodes, "tailed", 12)
    with open_stream(nodes, "topics/tailed/records?follow=true") as stream:
        assert sorted(json.loads(line)["value"] for line in next_lines(stream, 12)) == values
        write(nodes, "tailed", 0, "later")
        write(nodes, "tailed", 1, "later")
        assert [json.loads(line)["value"] for line in next_lines(stream, 2)] == ["later", "later"]
        assert call(nodes, "topics/tailed/partitions", {"count": PARTITIONS + 1})[0] == 200
        wait_until(lambda: is_read(nodes, "tailed", PARTITIONS, []), "the partition is served", PATIENCE_S)
        write(nodes, "tailed", PARTITIONS, "new")
        assert json.loads(next_lines(stream, 1)[0])["value"] == "new"


def test_events_of_both_nodes_say_where_another_request_continues(nodes: SeveralNodes) -> None:
    spread(nodes, "resumed")
    values = write_everywhere(nodes, "resumed", 12)
    found: list[str] = []
    offsets = ""
    while len(found) < len(values):
        query = f"follow=true&limit=3{offsets}"
        with open_stream(nodes, f"topics/resumed/records?{query}", accept="text/event-stream") as stream:
            lines = [line.decode().rstrip("\n").partition(": ") for line in stream]
        found += [json.loads(text)["value"] for name, _, text in lines if name == "data"]
        offsets = "&offsets=" + [text for name, _, text in lines if name == "id"][-1]
    assert sorted(found) == values


def test_sql_reads_topics_of_both_nodes_whole(nodes: SeveralNodes) -> None:
    away = spread(nodes, "queried")
    values = write_everywhere(nodes, "queried", 40)
    assert sql(nodes, "SELECT value FROM queried ORDER BY value") == [{"value": value} for value in values]
    counts = sql(nodes, 'SELECT "$tablet_index" AS tablet, count(*) AS rows FROM queried GROUP BY ALL ORDER BY ALL')
    assert counts == [{"tablet": index, "rows": 40 // PARTITIONS} for index in range(PARTITIONS)]
    assert sql(nodes, f'SELECT count(*) AS rows FROM queried WHERE "$tablet_index" = {away[0]}') == [{"rows": 10}]
    spread(nodes, "joined")
    write_everywhere(nodes, "joined", 8)
    text = "SELECT count(*) AS rows FROM queried JOIN joined USING (value)"
    assert sql(nodes, text) == [{"rows": 8}]


def test_sql_beside_growth_reads_all_records_or_says_so(nodes: SeveralNodes) -> None:
    """New partitions have no records: every answer has all."""
    for name in ("growing", "beside"):
        spread(nodes, name)
        write_everywhere(nodes, name, 8)
    text = "SELECT (SELECT count(*) FROM growing) AS a, (SELECT count(*) FROM beside) AS b"
    is_over, answers = threading.Event(), list[tuple[int, Any]]()

    def ask() -> None:
        while not is_over.is_set():
            answers.append(call(nodes, "sql", {"query": text}))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for count in range(PARTITIONS + 1, PARTITIONS + 7):
            known = len(answers)
            assert call(nodes, "topics/growing/partitions", {"count": count})[0] == 200
            wait_until(partial(has_more, answers, known + 1), "queries", PATIENCE_S)
    finally:
        is_over.set()
        thread.join()
    for status, told in answers:
        assert told == {"a": 8, "b": 8} or told["error"]["code"] in ("TABLE_CHANGED", "NOT_LEADER_OR_FOLLOWER"), told
        assert status in (200, 409, 503)
    wait_until(lambda: call(nodes, "sql", {"query": text}) == (200, {"a": 8, "b": 8}), "an answer", PATIENCE_S)


def test_sql_reads_what_lies_in_files_of_the_other_node(nodes: SeveralNodes) -> None:
    (first, *_) = spread(nodes, "stored")
    for number in range(24):  # more than a head has: bodies are written, which lie in files
        records = [{"value": f"{number} {index} " + "x" * 10_000, "partition": first} for index in range(80)]
        assert call(nodes, "topics/stored/records", {"records": records})[0] == 201
    assert call(nodes, f"topics/stored/partitions/{first}")[1]["body"]["count"]
    text = "SELECT count(*) AS rows, sum(octet_length(value)) AS bytes FROM stored"
    expected = {"rows": 24 * 80, "bytes": sum(len(f"{n} {i} ") + 10_000 for n in range(24) for i in range(80))}
    assert sql(nodes, text) == [expected]


def test_sql_reads_rows_of_tables_of_the_other_node(nodes: SeveralNodes) -> None:
    table = make_table_away(nodes, "selected")
    assert call(nodes, f"tables/{table}/rows", {"rows": [{"a": 5}, {"a": 6}]})[0] == 200
    assert sql(nodes, f'SELECT a, "$row_index" FROM {table}') == [
        {"a": 5, "$row_index": 0}, {"a": 6, "$row_index": 1}
    ]  # fmt: skip


def test_commands_and_the_client_read_topics_of_both_nodes_whole(nodes: SeveralNodes, tmp_path: Path) -> None:
    spread(nodes, "exported")
    values = write_everywhere(nodes, "exported", 12)
    file = tmp_path / "exported.jsonl"
    command("topic", "export", "exported", str(file), "--broker", nodes.kafka)
    assert sorted(json.loads(line)["value"] for line in file.read_text().splitlines()) == values
    found = command("consume", "exported", "--grep", "needle", "--json", "--broker", nodes.kafka)
    assert sorted(json.loads(line)["value"] for line in found.splitlines()) == values
    found = command("sql", "SELECT count(*) AS rows FROM exported", "--csv", "--http", nodes.http)
    assert found.split() == ["rows", "12"]
    with Client(f"http://{nodes.http}") as client:
        ranges = client.table("exported").row_ranges()
        assert [*ranges.ranges] == [(0, 12 // PARTITIONS)] * PARTITIONS


def test_sql_reads_cells_where_they_have_moved(nodes: SeveralNodes) -> None:
    spread(nodes, "carried")
    values = write_everywhere(nodes, "carried", 20)
    cells = [cell["id"] for cell in call(nodes, "cells")[1]["cells"] if cell["node"] == 2]
    for node in (1, 2):
        for cell in cells:
            assert call(nodes, f"cells/{cell}/move", {"node": node})[0] == 200
        wait_until(partial(is_queried, nodes, "carried", values), "all rows are read", PATIENCE_S)


def test_a_node_that_dies_ends_its_streams_with_an_error_that_names_it(nodes: SeveralNodes) -> None:
    away = spread(nodes, "dying")
    path = "topics/dying/records?follow=true"
    with open_stream(nodes, f"{path}&partition={away[0]}") as stream, open_stream(nodes, path) as whole:
        write(nodes, "dying", away[0], "before")
        assert [json.loads(next_lines(each, 1)[0])["value"] for each in (stream, whole)] == ["before", "before"]
        os.kill(nodes.pids()[2], signal.SIGKILL)
        lasts = [json.loads(each.readlines()[-1])["error"] for each in (stream, whole)]
    for last in lasts:
        assert last["code"] == "NODE_SILENT"
        assert "node 2" in last["message"]
    wait_until(lambda: is_read(nodes, "dying", away[0], ["before"]), "another node has the partition", PATIENCE_S)


def test_a_node_that_says_nothing_is_named(nodes: SeveralNodes) -> None:
    away = spread(nodes, "silent")
    os.kill(nodes.pids()[2], signal.SIGSTOP)  # until its parent kills it
    asked = (f"topics/silent/records?partition={away[0]}", None), ("sql", {"query": "SELECT count(*) FROM silent"})
    with ThreadPoolExecutor() as threads:
        for status, told in threads.map(lambda one: call(nodes, *one), asked):
            assert (status, told["error"]["code"]) == (503, "NODE_SILENT")
            assert told["error"]["message"].startswith("node 2")
    wait_until(lambda: is_read(nodes, "silent", away[0], []), "another node has the partition", PATIENCE_S)


def spread(nodes: SeveralNodes, name: str) -> list[int]:
    """Create a topic whose partitions both nodes lead; return those of the second."""
    admin = AdminClient(at_node(nodes, 1))
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    wait_until(partial(is_spread, admin, name), "a topic whose partitions two nodes lead", PATIENCE_S)
    found = admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions
    return sorted(index for index, partition in found.items() if partition.leader == 2)


def is_spread(admin: AdminClient, name: str) -> bool:
    """Return True once both nodes lead partitions of a topic. If one of them leads all, the topic is deleted and made
    again: a cell that was just given back counts as empty until its node has told what it runs, and so it gets all."""
    if not is_created(admin, name):
        return False
    found = leaders(admin, name)
    if found in ({1}, {2}):
        admin.delete_topics([name])[name].result(PATIENCE_S)
    return found == {1, 2}


def is_created(admin: AdminClient, name: str) -> bool:
    """Return True once a topic is created; a cell that is given back to its node refuses it for a moment."""
    topic = NewTopic(name, PARTITIONS, config={"pq.partitions.per.tablet": "1"})
    try:
        admin.create_topics([topic])[name].result(PATIENCE_S)
    except KafkaException as refused:
        return bool(refused.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def make_table_away(nodes: SeveralNodes, name: str) -> str:
    """Create an ordered table of one tablet, which the second node runs; return its name once it does."""
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    for number in range(10):
        table = f"{name}{number}"
        status, told = call(nodes, "tables", {"path": f"//{table}", "schema": [{"name": "a", "type": "int64"}]})
        assert status == 201, told
        admin = AdminClient(at_node(nodes, 1))
        wait_until(partial(is_led, admin, table), "a leader", PATIENCE_S)
        if leaders(admin, table) == {2}:
            return table
    raise AssertionError("no table lies at the second node")


def is_led(admin: AdminClient, topic: str) -> bool:
    """Return True once a topic's one partition has a leader."""
    return leaders(admin, topic) <= {1, 2}


def is_served_by_both(nodes: SeveralNodes) -> bool:
    """Return True once each node has data cells, and all are open."""
    cells = [cell for cell in call(nodes, "cells")[1]["cells"] if cell["id"]]
    return {cell["node"] for cell in cells} == {1, 2} and {cell["health"] for cell in cells} == {"good"}


def command(*words: str) -> str:
    """Return what a command prints."""
    run = [sys.executable, "-P", "-m", "pqbroker", *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "itself" not in done.stderr  # the broker searches
    return done.stdout


def write_everywhere(nodes: SeveralNodes, topic: str, count: int) -> list[str]:
    """Write records to all partitions of a topic; return their values in order."""
    records = [{"value": f"needle {number}", "partition": number % PARTITIONS} for number in range(count)]
    status, told = call(nodes, f"topics/{topic}/records", {"records": records})
    assert status == 201, told
    return sorted(f"needle {number}" for number in range(count))


def search(nodes: SeveralNodes, topic: str, body: dict[str, Any]) -> list[Any]:
    """Return the lines of a search."""
    with open_stream(nodes, f"topics/{topic}/search", json.dumps(body).encode()) as stream:
        return [json.loads(line) for line in stream]


def sql(nodes: SeveralNodes, text: str) -> list[Any]:
    """Return the rows of a query."""
    try:
        with open_stream(nodes, "sql", json.dumps({"query": text}).encode()) as stream:
            return [json.loads(line) for line in stream]
    except urllib.error.HTTPError as refused:
        raise AssertionError(refused.read()) from None


def has_more(answers: list[tuple[int, Any]], count: int) -> bool:
    return len(answers) > count


def is_queried(nodes: SeveralNodes, topic: str, values: list[str]) -> bool:
    """Return True if a query reads these values; one that a move meets is refused."""
    status, told = call(nodes, "sql", {"query": f"SELECT list(value ORDER BY value) AS found FROM {topic}"})
    assert status in (200, 503), told
    assert status == 503 or told == {"found": values}
    return status == 200


def is_read(nodes: SeveralNodes, topic: str, partition: int, values: list[str]) -> bool:
    """Return True if a partition is read and has these values."""
    status, told = call(nodes, f"topics/{topic}/records?partition={partition}")
    return status == 200 and [record["value"] for record in told["records"]] == values


def write(nodes: SeveralNodes, topic: str, partition: int, value: str, key: str | None = None) -> None:
    """Write one record over HTTP."""
    record = {"value": value, "key": key, "partition": partition}
    status, told = call(nodes, f"topics/{topic}/records", {"records": [record]})
    assert status == 201, told


def next_lines(stream: HTTPResponse, count: int) -> list[bytes]:
    """Return the next lines of a stream, heartbeats left out."""
    found: list[bytes] = []
    while len(found) < count:
        line = stream.readline()
        assert line, "the stream ended"
        if line != b"\n":
            found.append(line)
    return found


def open_stream(nodes: SeveralNodes, path: str, body: bytes | None = None, accept: str = "*/*") -> HTTPResponse:
    """Return an answer that is read as it comes."""
    headers = {"content-type": "application/json", "accept": accept}
    opened = urllib.request.urlopen(
        urllib.request.Request(f"http://{nodes.http}/v1/{path}", body, headers), timeout=PATIENCE_S
    )
    assert isinstance(opened, HTTPResponse)
    return opened


def call(nodes: SeveralNodes, path: str, asked: Any = None, method: str | None = None) -> tuple[int, Any]:
    """Return status and answer of a request to the HTTP of the broker: a POST where something is asked, and no method
    is given."""
    body, headers = None if asked is None else json.dumps(asked).encode(), {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{nodes.http}/v1/{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def until_taken(nodes: SeveralNodes, path: str, body: Any = None, method: str | None = None) -> Any:
    """Give a command until it is taken, and return what it tells: a cell that opens too slowly for one is open for the
    next."""
    end_s = time.monotonic() + PATIENCE_S
    while (answer := call(nodes, path, body, method))[0] >= 300:
        status, told = answer
        assert status == 503 or "try again" in told["error"]["message"], told
        assert time.monotonic() < end_s, told
    return answer[1]
