"""`pqbroker tablet`, at a broker of ours."""

import json
import shlex
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell, run

COMMANDS = (
    ["list"], ["show", "1"], ["keys", "1"], ["kv", "1", "{}"], ["restart", "1"],
    ["move", "1", "--channel", "2", "--pool", "main"],
)  # fmt: skip


class TabletShell(Shell):
    """Commands at a broker's HTTP address; `kafka` fills it."""

    def __init__(self, running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(running.kafka, capsys)
        self.http = running.http

    def __call__(self, *arguments: str) -> Said:
        return self.raw("tablet", *arguments, "--http", self.http)


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    """Two topics, of which `full` has eight partitions in two tablets and records in partition 5."""
    with memory_broker({"pqbroker.http.items.max": "7", "pqbroker.test.door": "true"}) as one:
        assert run("topic", "create", "full", "--partitions", "8", "--broker", one.kafka).status == 0
        assert run("topic", "create", "void", "--broker", one.kafka).status == 0
        lines = "v" * 2000 + "\n"
        assert run("produce", "full", "--partition", "5", "--broker", one.kafka, given=lines).status == 0
        yield one


@pytest.fixture
def shell(running: Broker, capsys: pytest.CaptureFixture[str]) -> TabletShell:
    return TabletShell(running, capsys)


def tablets(shell: TabletShell, topic: str) -> list[int]:
    return [one["id"] for one in shell("list", "--json").objects if one["topic"] == topic]


def test_all_tablets_are_listed_however_small_the_pages(shell: TabletShell) -> None:
    listed = shell("list", "--json").objects
    kinds = [one["type"] for one in listed]
    assert (kinds.count("scheme"), kinds.count("coordinator"), kinds.count("persqueue")) == (1, 16, 3)
    table = shell("list").output.splitlines()
    assert table[0].split() == ["id", "type", "topic", "state", "generation", "partitions"]
    first = tablets(shell, "full")[0]
    assert [str(first), "persqueue", "full", "running", "1", "4"] in map(str.split, table)


def test_a_tablet_is_shown_with_its_channels(shell: TabletShell) -> None:
    tablet = tablets(shell, "full")[1]
    found = shell("show", str(tablet), "--json").object
    assert (found["id"], found["partitions"], found["key_count"]) == (tablet, [4, 5, 6, 7], 3)
    lines = shell("show", str(tablet)).output.splitlines()
    assert lines[0] == f"tablet {tablet}, persqueue of topic full, running in cell 0"
    assert lines[1:3] == ["  generation 1, blocked up to 0", "  partitions 4, 5, 6, 7"]
    assert lines[-1].split() == ["2", "data", "main", "green", "main", "from", "1", "-", "-"]
    scheme = shell("show", "1").output
    assert scheme.startswith("tablet 1, scheme, running in cell 0\n")
    assert "  row set topics, 2 rows\n" in scheme


def test_keys_are_listed_from_where_one_says(shell: TabletShell) -> None:
    tablet = str(tablets(shell, "full")[1])
    data, meta, producer = shell("keys", tablet, "--json").objects
    assert data["key"] == "d0000000005_00000000000000000000_00000_0000000001_00000|"
    assert meta["key"] == "i0000000005"
    assert shell("keys", tablet, "--from", "e", "--json").objects == [meta, producer]
    table = shell("keys", tablet, "--limit", "1").output.splitlines()
    assert table[2].split()[0] == data["key"]
    assert table[2].endswith(data["blobs"][0])
    assert table[-1] == "more with --from i0000000005"


def test_a_key_to_go_on_from_can_be_typed_as_it_is_said(shell: TabletShell) -> None:
    """A group's name is part of its key, and may have what a shell reads otherwise."""
    where = ("--topic", "full", "--partition", "0", "--to", "earliest")
    for group in ("a", "it's; $HOME"):
        assert shell.raw("group", "reset", group, *where, "--broker", shell.kafka).status == 0
    tablet = str(tablets(shell, "full")[0])
    told = shell("keys", tablet, "--limit", "1").output.splitlines()[-1]
    following = shlex.split(told)[-1]
    assert following == "m0000000000cit's; $HOME"
    assert [key["key"] for key in shell("keys", tablet, "--from", following, "--json").objects] == [following]


def test_commands_read_and_change_keys(shell: TabletShell) -> None:
    tablet = str(tablets(shell, "void")[0])
    written = [json.dumps({"write": {"key": f"u{key}", "value": key}}) for key in "ab"]
    assert shell("kv", tablet, *written).output == "done in user generation 0\n"
    assert shell("kv", tablet, '{"read": {"key": "ua"}}').output == "a\n"
    assert shell("kv", tablet, '{"read": {"key": "uz"}}').output == "there is no such key\n"
    assert shell("kv", tablet, '{"get_status": {}}').output == "green\n"
    table = shell("kv", tablet, '{"read_range": {"from": "u", "include_data": true}}').output.splitlines()
    assert [line.split()[0] for line in table[2:]] == ["ua", "ub"]
    few = shell("kv", tablet, '{"read_range": {"from": "u", "limit_bytes": 1}}').output
    assert few.endswith("more behind ua\n")
    assert shell("kv", tablet, written[0], "--generation", "9").status == 1
    found = shell("kv", tablet, '{"delete_range": {"from": "u", "to": "v"}}', "--json").object
    assert found == {"generation": 0, "result": None}


def test_a_tablet_is_restarted_and_moved(shell: TabletShell) -> None:
    tablet = tablets(shell, "void")[0]
    assert shell("restart", str(tablet), "--json").object == {"id": tablet, "generation": 2}
    assert shell("restart", str(tablet)).output == f"tablet {tablet} runs in generation 3\n"
    arguments = ("move", str(tablet), "--channel", "2", "--pool", "main")
    assert shell(*arguments, "--json").object == {
        "id": tablet, "channel": 2, "group": 0, "pool": "main", "generation": 4,
    }  # fmt: skip
    assert shell(*arguments).output == (
        f"tablet {tablet} writes channel 2 to pool main, from generation 5 on\n"
        "blobs smaller than 1000 bytes stay in the index\n"
    )
    assert shell("move", str(tablet), "--channel", "2", "--group", "0", "--json").errors == (
        "pqbroker: --group is now called --pool, and takes the pool's name\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["show", "7"], 1, "there is no tablet 7. `pqbroker tablet list` lists"),
        (["keys", "1"], 1, "tablet 1 (scheme) keeps row sets in log blobs, no keys. GET /v1/blobs?tablet=1"),
        (["keys", "65536", "--from", "\\n"], 1, "single backslash"),
        (["kv", "1", "{"], 2, "the command '{' is no JSON"),
        (["kv", "1", '{"get_status": {}}'], 1, "keeps row sets in log blobs"),
        (["restart", "7"], 1, "there is no tablet 7. "),
        (["move", "1", "--channel", "2", "--pool", "9"], 1, "no pool '9'; the cell has main. `pqbroker tablet"),
        (["move", "1", "--channel", "2"], 2, "missing option '--pool'"),
        (["move", "1", "--pool", "main"], 2, "missing option '--channel'"),
        (["show", "x"], 2, "example: pqbroker tablet show 65536"),
        (["show"], 2, "missing argument 'TABLET'"),
        (["list", "--http", "a:b"], 2, "--http 'a:b' is no HOST:PORT"),
    ],
)
def test_a_refusal_names_cause_and_cure(shell: TabletShell, arguments: list[str], status: int, words: str) -> None:
    said = shell.raw("tablet", *arguments, *([] if "--http" in arguments else ["--http", shell.http]))
    assert (said.status, said.output) == (status, "")
    assert said.errors.startswith("pqbroker: ")
    assert words in said.errors


@pytest.mark.parametrize("arguments", COMMANDS)
def test_without_a_broker_every_command_says_how_to_start_one(shell: TabletShell, arguments: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = shell.raw("tablet", *arguments, "--http", address)
    assert (said.status, said.output) == (1, "")
    assert said.errors.startswith(f"pqbroker: no broker answers at {address} over HTTP (Connection refused); ")
    assert f"`pqbroker serve --http {address}`" in said.errors


class Stranger(BaseHTTPRequestHandler):
    """Another program's HTTP server."""

    answer = b""
    status = 200

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.answer)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "answer"), [(200, b"<html>"), (404, b"<html>"), (200, b"{}"), (200, b"[]"), (404, b'{"error": "none"}')]
)
@pytest.mark.parametrize("arguments", [["list"], ["show", "1"], ["restart", "1"]])
def test_what_is_no_broker_of_ours_is_said_to_be_none(
    shell: TabletShell, arguments: list[str], status: int, answer: bytes
) -> None:
    kind = type("Kind", (Stranger,), {"answer": answer, "status": status})
    with HTTPServer(("127.0.0.1", 0), kind) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        said = shell.raw("tablet", *arguments, "--http", f"127.0.0.1:{server.server_port}")
        server.shutdown()
        serving.join()
    assert said.status == 1
    assert "is no pqbroker (" in said.errors


class Restless(Stranger):
    """A broker that moves channels and does not restart tablets."""

    def do_POST(self) -> None:
        refused = self.path.endswith("/restart")
        self.status = 503 if refused else 200
        problem = {"code": "KAFKA_STORAGE_ERROR", "message": "the disk is full", "cure": "Make room."}
        self.answer = json.dumps({"error": problem} if refused else {"channels": []}).encode()
        super().do_POST()


def test_a_move_without_a_restart_says_how_far_it_came(shell: TabletShell) -> None:
    with HTTPServer(("127.0.0.1", 0), Restless) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        address = f"127.0.0.1:{server.server_port}"
        said = shell.raw("tablet", "move", "65536", "--channel", "2", "--pool", "big", "--http", address)
        server.shutdown()
        serving.join()
    assert (said.status, said.output) == (1, "")
    assert said.errors == (
        "pqbroker: channel 2 moves with the next start of tablet 65536, which was not restarted: "
        "the disk is full. Make room.\n"
    )


def test_the_kafka_address_is_said_to_be_the_wrong_one(shell: TabletShell) -> None:
    said = shell.raw("tablet", "list", "--http", shell.kafka)
    assert said.status == 1
    assert f"{shell.kafka} closed the connection without an answer: " in said.errors
    assert "the address is not the one that `pqbroker serve` prints behind http=" in said.errors


def test_the_environment_names_the_address(running: Broker) -> None:
    said = run("tablet", "show", "1", "--json", PQBROKER_HTTP=running.http)
    assert said.status == 0, said.errors
    assert json.loads(said.output)["id"] == 1
