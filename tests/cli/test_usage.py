"""What is typed wrong, brokers that are not there, pipes, signals, completion: the command line as such."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pqbroker.cli.app import COMMANDS, find_family, is_single
from pqbroker.cli.help_text import summary
from pqbroker.cli.output import say
from pqbroker.cli.refusals import near, near_name
from pqbroker.testing import broker, memory_broker
from tests.cli.shell import TIMEOUT_S, Said, Shell, run, start
from tests.support.cli_page import (
    FAMILIES_OVER_HTTP,
    KEYS,
    OVER_BOTH,
    OVER_HTTP,
    PAGE,
    WITHOUT_BROKER,
    cli_page,
    commands,
)


def test_the_page_says_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == cli_page(), "run: python -m tests.support.cli_page"


def test_every_command_has_an_example_a_broker_and_json() -> None:
    found = commands()
    assert found.keys() == KEYS.keys()
    for name, command in found.items():
        assert f"pqbroker {name}" in command.example
        parameters = {parameter.name for parameter in command.parameters}
        assert ("json" in parameters) != (name == "completion")
        is_over_http = name in OVER_HTTP or name.startswith(FAMILIES_OVER_HTTP)
        assert ("broker" in parameters) != (name in WITHOUT_BROKER or is_over_http)
        assert ("http" in parameters) == (is_over_http or name in OVER_BOTH)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topics"], ["no such command 'topics'; did you mean topic", "usage: pqbroker COMMAND ..."]),
        (["topic", "crate"], ["no such command 'crate'; did you mean create?", "usage: pqbroker topic COMMAND ..."]),
        (["topic", "zzz"], ["no such command 'zzz'; `pqbroker topic` alone lists the commands"]),
        (["topic", "create"], ["missing argument 'TOPIC'", "example: pqbroker topic create orders"]),
        (["topic", "create", "a", "--partition", "3"], ["no such option --partition; did you mean --partitions?"]),
        (["sql", "--format", "csv", "SELECT 1"], ["no such option --format; --help lists the options"]),
        (["topic", "create", "a", "-x"], ["no such option -x; --help lists the options"]),
        (["topic", "create", "a", "--partiton", "3"], ["did you mean --partitions?\n"]),
        (["topic", "list", "more"], ["unexpected 'more': the command takes no more arguments"]),
        (["topic", "list", "--json=yes"], ["'--json' takes no value"]),
        (["topic", "list", "--broker"], ["'--broker' needs a value"]),
        (["--verbose"], ["no such option '--verbose'; `pqbroker` alone lists the commands"]),
        (["topic", "create", "a", "--partitions", "x"], ["'--partitions'", "example: "]),
        (["topic", "create", "a", "--config", "b"], ["--config 'b': give NAME=VALUE, as in retention.ms=3600000"]),
        (["topic", "create", "a", "--partitions", "2147483648"], ["'--partitions'", "equal to 2147483647"]),
        (["topic", "create", "a", "--replication-factor", "32768"], ["less than or equal to 32767"]),
        (["topic", "grow", "a", "2147483648"], ["'COUNT'", "less than or equal to 2147483647"]),
        (["bench", "--partitions", "2147483648"], ["'--partitions'", "less than or equal to 2147483647"]),
        (["bench", "--size", "1000000000000"], ["'--size'", "less than or equal to 134217728"]),
        (["tablet", "keys", "1", "--limit", str(1 << 63)], ["'--limit'", "less than or equal to 2147483647"]),
        (["topic", "list", "--broker", "a:b"], ["--broker 'a:b' is no HOST:PORT"]),
        (["topic", "list", "--broker", "a,"], ["--broker '' is no HOST:PORT"]),
        (["tablet", "list", "--http", "a b:80"], ["--http 'a b:80' is no HOST:PORT"]),
        (["topic", "list", "--broker", "a\n:80"], ["--broker 'a\\n:80' is no HOST:PORT"]),
        (["topic", "trim", "a"], ["missing option '--before'"]),
        (["topic", "trim", "a", "--before", "x"], ["--before 'x': give beginning, end, an offset"]),
        (["group", "reset", "g"], ["one of --to POSITION and --shift COUNT"]),
        (["group", "reset", "g", "--to", "end", "--shift", "1"], ["one of --to POSITION and --shift COUNT"]),
        (["group", "reset", "g", "--to", "end", "--partition", "1"], ["--partition needs the one --topic"]),
    ],
)
def test_wrong_input_is_named_and_the_right_form_shown(
    our_shell: Shell, arguments: list[str], words: list[str]
) -> None:
    said = our_shell.raw(*arguments)
    assert (said.status, said.output) == (2, "")
    assert said.errors.startswith("pqbroker: ")
    assert all(word in said.errors for word in words), said.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "\udcff"],
        ["topic", "describe", "\udcff"],
        ["topic", "configs", "t", "--set", "retention.ms=\udcff"],
        ["group", "describe", "\udcff"],
        ["produce", "t", "--header", "a=\udcff"],
        ["produce", "t", "--key-separator", "\udcff"],
        ["tablet", "keys", "1", "--from", "\udcff"],
    ],
)
def test_bytes_that_are_no_text_are_refused(our_shell: Shell, arguments: list[str]) -> None:
    said = our_shell.raw(*arguments)
    assert (said.status, said.output) == (2, "")
    assert "\\udcff' is no UTF-8" in said.errors


def every_command(broker: str) -> list[list[str]]:
    """Each command of Kafka's protocol with what it needs, at a broker."""
    needed = {
        "topic create": ["t"], "topic describe": ["t"], "topic grow": ["t", "2"], "topic configs": ["t"],
        "topic analyze": ["t"], "topic export": ["t", "t.jsonl"],
        "topic trim": ["t", "--before", "end", "--yes"],
        "topic delete": ["t", "--yes"], "produce": ["t"], "user add": ["u"], "user password": ["u"],
        "user remove": ["u", "--yes"],
        "consume": ["t"], "group describe": ["g"], "group reset": ["g", "--to", "end"],
        "group delete": ["g", "--yes"], "acl remove": ["--topic", "t", "--yes"],
        "acl add": ["--allow", "User:ann", "--operation", "read", "--topic", "t"],
        "quota set": ["--for-user", "ann", "--produce", "1"], "quota remove": ["--for-user", "ann"],
    }  # fmt: skip
    others = WITHOUT_BROKER | OVER_HTTP
    names = [name for name in KEYS if name not in others and not name.startswith(FAMILIES_OVER_HTTP)]
    return [[*name.split(), *needed.get(name, []), "--broker", broker] for name in names]


def test_without_a_broker_every_command_says_how_to_start_one(our_shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for arguments in every_command(address):
            said = our_shell.raw(*arguments)
            assert (said.status, said.output) == (1, "")
            assert said.errors.startswith(f"pqbroker: no broker answers at {address} (Connection refused); ")
            assert f"`pqbroker serve --kafka {address}`" in said.errors


def test_what_is_no_broker_is_said_to_be_none(our_shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        process = start("topic", "list", "--broker", f"127.0.0.1:{other.getsockname()[1]}")
        connection, _ = other.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "(it does not speak Kafka's protocol)" in errors


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are told, and give up, at once."""
    monkeypatch.setattr("pqbroker.cli.notices.NOTICE_AFTER_S", 0.05)
    monkeypatch.setattr("pqbroker.cli.kafka.link.FIRST_ANSWER_TIMEOUT_S", 0.5)
    monkeypatch.setattr("pqbroker.cli.web.TIMEOUT_S", 0.5)


@pytest.mark.usefixtures("impatient")
def test_who_waits_for_what_never_answers_is_told_and_refused_in_time(our_shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        for arguments in (["topic", "list", "--broker"], ["produce", "t", "--broker"], ["tablet", "list", "--http"]):
            said = our_shell.raw(*arguments, address, "--json")
            assert (said.status, said.output) == (1, "")
            waiting, refusal = said.errors.splitlines()
            assert waiting == f"pqbroker: waiting for an answer of {address}, 0.5 s at most; Ctrl-C ends it"
            assert refusal.startswith(f"pqbroker: no broker answers at {address}")
            assert "(timed out)" in refusal


@pytest.mark.usefixtures("impatient")
def test_a_name_that_is_not_resolved_in_time_is_refused(our_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = threading.Event()
    monkeypatch.setattr("pqbroker.cli.kafka.cluster.CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolved.wait(TIMEOUT_S) and [])
    said = our_shell.raw("topic", "list", "--broker", "far:9092")
    resolved.set()
    assert (said.status, said.output) == (1, "")
    waiting, refusal = said.errors.splitlines()
    assert waiting == "pqbroker: waiting for far:9092 to take a connection, 0.5 s at most; Ctrl-C ends it"
    assert refusal.startswith("pqbroker: no broker answers at far:9092 (timed out); ")


def test_the_environment_names_the_broker_and_the_flag_wins(ours: str) -> None:
    assert run("topic", "list", PQBROKER_BROKER=ours).status == 0
    assert "127.0.0.1:1 " in run("topic", "list", "--broker", "127.0.0.1:1", PQBROKER_BROKER=ours).errors


def piped(ours: str, topic: str, given: str, *options: str) -> Said:
    return run("produce", topic, "--broker", ours, *options, given=given)


def test_lines_come_from_standard_input(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic)
    assert piped(our_shell.kafka, topic, "one\ntwo\n").output.startswith(f"2 records to {topic} in ")
    assert piped(our_shell.kafka, topic, "").output.startswith(f"0 records to {topic} in ")
    assert our_shell("consume", topic).output == "one\ntwo\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_following_with_0(
    our_shell: Shell, fresh_name: Callable[[], str], number: signal.Signals
) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic)
    reader = start("consume", topic, "--follow", "--broker", our_shell.kafka)
    piped(our_shell.kafka, topic, "one\n")
    assert reader.stdout is not None
    assert reader.stdout.readline() == "one\n"
    reader.send_signal(number)
    assert reader.communicate(timeout=TIMEOUT_S) == ("", "")
    assert reader.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_writing_that_waits_for_lines_with_what_is_written(
    our_shell: Shell, fresh_name: Callable[[], str], number: signal.Signals
) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic)
    reader = start("consume", topic, "--follow", "--broker", our_shell.kafka)
    writer = start("produce", topic, "--broker", our_shell.kafka)
    assert writer.stdin is not None
    assert reader.stdout is not None
    writer.stdin.write("one\nunfinished")
    writer.stdin.flush()
    assert reader.stdout.readline() == "one\n"
    writer.send_signal(number)
    assert writer.wait(TIMEOUT_S) == 0
    output, errors = writer.communicate()
    assert output.startswith(f"1 record to {topic} in ")
    assert errors == ""
    reader.terminate()
    assert reader.communicate(timeout=TIMEOUT_S)[0] == ""


def test_ctrl_c_before_anything_was_written_is_no_success(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    writer = start("produce", fresh_name(), "--broker", our_shell.kafka)
    assert writer.stdin is not None
    assert writer.stderr is not None
    writer.stdin.write("no whole line")
    writer.stdin.flush()
    assert "created topic" in writer.stderr.readline()
    writer.send_signal(signal.SIGINT)
    assert writer.wait(TIMEOUT_S) == 1
    assert writer.stderr.read().startswith("pqbroker: interrupted")
    writer.communicate()


def test_ctrl_c_ends_writing_to_a_broker_that_has_gone() -> None:
    with broker() as running:
        assert run("topic", "create", "t", "--broker", running.kafka).status == 0
        reader = start("consume", "t", "--follow", "--broker", running.kafka)
        writer = start("produce", "t", "--broker", running.kafka)
        assert writer.stdin is not None
        assert reader.stdout is not None
        writer.stdin.write("one\n")
        writer.stdin.flush()
        assert reader.stdout.readline() == "one\n"
        running.kill()
        reader.kill()
        reader.communicate()
        writer.stdin.write("two\n")
        writer.stdin.close()
        writer.stdin = None
        assert writer.stderr is not None
        assert f"no broker answers at {running.kafka} (" in writer.stderr.readline()
        writer.send_signal(signal.SIGINT)
        told = "pqbroker: interrupted; records written: 1, more perhaps\n"
        assert writer.communicate(timeout=TIMEOUT_S)[1] == told
        assert writer.returncode == 1


def test_who_writes_or_follows_is_told_that_the_broker_has_gone_and_goes_on_when_it_is_back() -> None:
    with broker() as running:
        assert run("topic", "create", "t", "--broker", running.kafka).status == 0
        reader = start("consume", "t", "--follow", "--json", "--broker", running.kafka)
        writer = start("produce", "t", "--json", "--broker", running.kafka)
        assert writer.stdin is not None
        assert writer.stderr is not None
        assert reader.stdout is not None
        assert reader.stderr is not None
        writer.stdin.write('{"value": "one"}\n')
        writer.stdin.flush()
        assert json.loads(reader.stdout.readline())["value"] == "one"
        running.kill()
        writer.stdin.write('{"value": "two"}\n')
        writer.stdin.close()
        writer.stdin = None
        gone = f"pqbroker: no broker answers at {running.kafka} (Connection refused); waiting until it is back"
        assert writer.stderr.readline() == f"{gone}, 60 s at most; Ctrl-C ends it\n"
        assert reader.stderr.readline() == f"{gone}; Ctrl-C ends it\n"
        running.start()
        output, errors = writer.communicate(timeout=TIMEOUT_S)
        *told, report = errors.splitlines()
        assert (writer.returncode, output, json.loads(report)["records"]) == (0, "", 2)
        assert told in ([], [f"pqbroker: the broker at {running.kafka} answers again"])
        assert json.loads(reader.stdout.readline())["value"] == "two"
        assert reader.stderr.readline() == f"pqbroker: the broker at {running.kafka} answers again\n"
        reader.send_signal(signal.SIGINT)
        assert reader.communicate(timeout=TIMEOUT_S) == ("", "")
        assert reader.returncode == 0


def test_a_reader_that_has_enough_is_no_error(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic)
    piped(our_shell.kafka, topic, f"{'x' * 1000}\n" * 1000)
    reader = start("consume", topic, "--broker", our_shell.kafka)
    check_ends_unread(reader)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_has_enough_of_a_list_is_no_error(
    our_shell: Shell, fresh_name: Callable[[], str], options: list[str]
) -> None:
    our_shell("topic", "create", fresh_name())
    lister = start("topic", "list", *options, "--broker", our_shell.kafka, PYTHONUNBUFFERED="")
    check_ends_unread(lister)


def check_ends_unread(command: "subprocess.Popen[str]") -> None:
    """Nobody reads what it prints any more: it ends, and that is no error."""
    assert command.stdout is not None
    command.stdout.close()
    assert command.stderr is not None
    assert command.stderr.read() == ""
    assert command.wait(TIMEOUT_S) == 0
    command.stdout = None
    command.communicate()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["topic", "list"], ["topic", "list", "--json"], ["consume"]])
def test_a_full_disk_is_told(
    our_shell: Shell, fresh_name: Callable[[], str], arguments: list[str], unbuffered: str
) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic)
    piped(our_shell.kafka, topic, "one\n")
    named = [] if "list" in arguments else [topic]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pqbroker", *arguments, *named, "--broker", our_shell.kafka],
            stdout=full, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1,
        "pqbroker: cannot write to standard output: No space left on device\n",
    )


class Narrow(io.RawIOBase):
    """A stream that takes three bytes at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.taken += bytes(data)[:3]
        return min(3, len(data))


def test_output_that_is_taken_in_parts_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = Narrow()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(narrow))  # type: ignore[type-var]
    say("grüße")
    assert narrow.taken == "grüße\n".encode()


def test_what_is_printed_is_utf_8_whatever_the_locale_says(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    topic, group = fresh_name(), "grüße"
    our_shell("topic", "create", topic)
    assert our_shell("group", "reset", group, "--topic", topic, "--to", "end").status == 0
    for options in ([], ["--json"]):
        listed = run("group", "list", *options, "--broker", our_shell.kafka, PYTHONIOENCODING="ascii")
        assert group in listed.output


def complete(line: str, **environment: str) -> list[str]:
    """What bash would offer for the last word of a line."""
    last = str(len(line.split(" ")) - 1)
    return run(COMP_WORDS=line, COMP_CWORD=last, _PQBROKER_COMPLETE="complete_bash", **environment).output.split()


def test_the_shell_completes_commands_options_and_topics(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic)
    assert complete("pqbroker topic de") == ["describe", "delete"]
    assert "--follow" in complete("pqbroker consume --fo")
    assert complete(f"pqbroker consume {topic[:-2]}", PQBROKER_BROKER=our_shell.kafka) == [topic]
    assert complete(f"pqbroker consume --broker {our_shell.kafka} {topic[:-2]}") == [topic]


def test_without_a_broker_nothing_is_completed_and_nothing_said() -> None:
    assert complete("pqbroker consume x", PQBROKER_BROKER="127.0.0.1:1") == []


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"], ["-h"]])
def test_without_a_command_all_are_listed(our_shell: Shell, arguments: list[str]) -> None:
    said = our_shell.raw(*arguments)
    assert (said.status, said.errors) == (0, "")
    for name, (sentence, _) in COMMANDS.items():
        assert f"  {name} " in said.output
        assert sentence in " ".join(said.output.split())


@pytest.mark.parametrize("arguments", [["topic"], ["help", "topic"], ["topic", "help"], ["topic", "--help"]])
def test_without_its_command_a_family_lists_them(our_shell: Shell, arguments: list[str]) -> None:
    said = our_shell.raw(*arguments)
    assert (said.status, said.errors) == (0, "")
    assert "  describe " in said.output
    assert "  config " not in said.output


@pytest.mark.parametrize("arguments", [["help", "topic", "create"], ["topic", "create", "--help"]])
def test_the_help_of_a_command_says_how_it_is_written(our_shell: Shell, arguments: list[str]) -> None:
    said = our_shell.raw(*arguments)
    assert said.status == 0
    assert said.output.startswith("usage: pqbroker topic create [OPTION]... TOPIC...\n\nCreate topics.\n")
    assert said.output.endswith(
        "example:\n  pqbroker topic create orders --partitions 4 --config retention.ms=3600000\n"
    )
    assert max(map(len, said.output.splitlines())) <= 80


def test_every_help_is_in_plain_words(our_shell: Shell) -> None:
    for name in ("", *COMMANDS.keys() - {"serve"}, *KEYS):
        said = our_shell.raw(*name.split(), "--help")
        assert not re.search(r"\b(INTEGER|TEXT RANGE|RANGE|ARGS|OPTIONS|None)\b|\[default", said.output), said.output


def test_the_list_says_of_a_command_what_its_help_says() -> None:
    for name, (sentence, _) in COMMANDS.items():
        family = find_family(name)
        text = family.commands[name].help if is_single(name, family) else family.help
        assert name == "serve" or summary(text) == sentence


def test_several_brokers_may_be_named_and_one_without_its_port(our_shell: Shell, ours: str) -> None:
    host, port = ours.split(":")
    assert our_shell.raw("topic", "list", "--broker", f"127.0.0.1:1, {ours}").status == 0
    assert our_shell.raw("topic", "list", "-b", f"{host}:{port}").status == 0
    refused = our_shell.raw("topic", "list", "-b", "127.0.0.2")
    assert "no broker answers at 127.0.0.2:9092 (" in refused.errors
    topic = "several-brokers"
    assert piped(f"127.0.0.1:1,{ours}", topic, "one\n").status == 0
    assert our_shell.raw("consume", topic, "-b", f"127.0.0.1:1,{ours}").output == "one\n"


def test_a_topic_that_a_writer_names_is_created_where_the_broker_may(
    shell: Shell, fresh_name: Callable[[], str]
) -> None:
    topic = fresh_name()
    said = run("produce", topic, "--broker", shell.kafka, given="one\n")
    assert said.output.startswith(f"1 record to {topic} in ")
    assert said.errors.startswith(f"pqbroker: created topic {topic} with 1 partition")
    assert shell("consume", topic).output == "one\n"


def test_no_topic_is_created_where_the_broker_may_not() -> None:
    with memory_broker({"auto.create.topics.enable": "false"}) as running:
        said = run("produce", "t", "--broker", running.kafka, given="one\n")
        assert (said.status, said.output) == (1, "")
        assert said.errors.startswith(f"pqbroker: no topic t at {running.kafka}; `pqbroker topic create t` makes it")


def test_a_command_starts_with_few_modules(ours: str) -> None:
    """Counted, for time depends on the machine: 0.5 s of processor were 1 000 modules."""
    program = (
        "import sys; from pqbroker.__main__ import main; main(['topic', 'list', '--broker', sys.argv[1]]); "
        "print(len(sys.modules), sorted({'aiokafka', 'asyncio', 'rich', 'rocksdict', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, ours], capture_output=True, text=True)
    count, _, heavy = done.stdout.splitlines()[-1].partition(" ")
    assert heavy == "[]"
    assert int(count) < 300


def test_serving_imports_none_of_the_commands_libraries() -> None:
    program = (
        "import sys; sys.argv[1:] = ['serve', '--kafka', 'none']; from pqbroker.__main__ import main; main(); "
        "import pqbroker.broker.node.server; "
        "print(sorted({'aiokafka', 'duckdb', 'numpy', 'pqbroker.cli', 'pyarrow', 'sqlglot'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("ordres", "orders"), ("order", "orders"), ("Orders", "orders"), ("orders_eu", "orders-eu"),
        ("t2", ""), ("orders-2", ""), ("orders2026", ""), ("zebra", ""), ("ab", ""), ("shop.orders.archive", ""),
    ],
)  # fmt: skip
def test_a_name_is_suggested_for_one_mistyped_alone(typed: str, found: str) -> None:
    known = ["t", "t1", "orders", "orders-1", "orders-eu", "a", "shop.orders"]
    assert near_name(typed, known) == (f"did you mean {found}?" if found else "")


def test_the_options_that_are_most_alike_are_suggested_alone() -> None:
    known = ["retention.ms", "retention.bytes", "local.retention.ms", "max.message.bytes"]
    assert near("retenton.ms", known) == "did you mean retention.ms?"
    assert near("zebra", known) == ""


def test_serve_explains_and_refuses_in_the_form_of_the_others(
    our_shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        our_shell.raw("serve", "--help")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: pqbroker serve [OPTION]...\n\nRun a broker on a data directory.\n")
    assert "\n  --data DIR                    Directory of the data; " in shown
    assert shown.endswith("example:\n  pqbroker serve --data ./data\n")
    assert max(map(len, shown.splitlines())) <= 80
    with pytest.raises(SystemExit) as ended:
        our_shell.raw("serve", "--dat", "x")
    assert ended.value.code == 2
    refused = capsys.readouterr().err.splitlines()
    assert refused[0].startswith("pqbroker: unrecognized arguments: --dat")
    assert refused[1:] == ["usage: pqbroker serve [OPTION]...", "example: pqbroker serve --data ./data"]
