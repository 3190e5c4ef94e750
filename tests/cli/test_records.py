"""`pqbroker produce` and `consume`, at our broker and at Apache Kafka."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.cli import http_address
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.records import searching
from tests.cli.shell import Shell


def write(shell: Shell, tmp_path: Path, topic: str, text: bytes, *options: str) -> int:
    """The number of records that the command says it wrote."""
    file = tmp_path / "lines"
    file.write_bytes(text)
    said = shell("produce", topic, "--file", str(file), *options)
    assert said.status == 0, said.errors
    return int(said.output.split()[0])


def test_lines_become_records_byte_for_byte(shell: Shell, topic: str, tmp_path: Path) -> None:
    assert write(shell, tmp_path, topic, b"one\r\ntwo\n\nlast", "--partition", "1") == 4
    assert shell("consume", topic).output == "one\r\ntwo\n\nlast\n"


def test_keys_headers_and_nulls_are_written(shell: Shell, topic: str, tmp_path: Path) -> None:
    before = time.time_ns() // 1_000_000
    options = ["--key-separator", "=>", "--null", "NULL", "--header", "a=1", "--header", "b=x=y", "--partition", "0"]
    write(shell, tmp_path, topic, "k=>v=>w\ng=>NULL\nü=>\xff\n".encode("latin-1"), *options)
    first, second, third = shell("consume", topic, "--format", "json").objects
    assert before <= first.pop("timestamp") <= time.time_ns() // 1_000_000
    assert first == {
        "topic": topic, "partition": 0, "offset": 0, "key": "k", "value": "v=>w",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": "x=y"}],
    }  # fmt: skip
    assert (second["key"], second["value"]) == ("g", None)
    assert (third["key"], third["value"]) == ({"base64": "/A=="}, {"base64": "/w=="})
    assert shell("consume", topic, "--format", "key", "--limit", "2").output == "k\ng\n"


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["1", "all"])
def test_what_is_compressed_is_read(shell: Shell, topic: str, tmp_path: Path, compression: str, acks: str) -> None:
    lines = b"same same same\n" * 100
    assert write(shell, tmp_path, topic, lines, "--compression", compression, "--acks", acks) == 100
    assert shell("consume", topic).output.encode() == lines


def test_without_acknowledgements_records_are_written(shell: Shell, topic: str, tmp_path: Path) -> None:
    assert write(shell, tmp_path, topic, b"a\nb\n", "--acks", "0") == 2


def test_a_line_without_its_key_is_named(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("k:v\nnone\n")
    refused = shell("produce", topic, "--file", str(file), "--key-separator", ":")
    assert refused.status == 1
    assert "line 2 has no ':' after a key" in refused.errors
    assert shell("consume", topic).output == "v\n"


def test_of_lines_that_cannot_be_written_the_first_is_named(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"k:" + b"x" * 2_000_000 + b"\nnone\nk:v\n")
    refused = shell("produce", topic, "--file", str(file), "--key-separator", ":")
    assert refused.status == 1
    assert refused.errors.startswith("pqbroker: line 1 was not written: the record is larger than")
    assert shell("consume", topic).output == ""


@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_of_any_length_are_read_as_they_come(
    our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path, end: str
) -> None:
    topic, file = fresh_name(), tmp_path / "lines"
    our_shell("topic", "create", topic)
    lines = ["", "x" * 200_000, "", "y" * 65_536, "z" * 65_535, "end"]
    file.write_text("\n".join(lines) + end)
    assert our_shell("produce", topic, "--file", str(file)).status == 0
    assert our_shell("consume", topic).output.splitlines() == lines


def test_a_line_without_end_is_refused(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic)
    refused = our_shell("produce", topic, "--file", "/dev/zero")
    assert refused.status == 1
    assert refused.errors == "pqbroker: line 1 is over 134217728 bytes long\n"


def test_what_a_topic_refuses_is_said_in_words(
    our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    """aiokafka knows no INVALID_RECORD."""
    topic, file = fresh_name(), tmp_path / "lines"
    configs = ('pq.schema=[{"name":"id","type":"int64"}]', "value.invalid=refuse")
    assert our_shell("topic", "create", topic, "--config", configs[0], "--config", configs[1]).status == 0
    file.write_text("hello\n")
    refused = our_shell("produce", topic, "--file", str(file))
    assert refused.status == 1
    assert refused.errors.startswith("pqbroker: line 1 was not written: the topic does not take such a record: ")


def test_a_record_that_is_too_large_is_named(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 2_000_000)
    refused = shell("produce", topic, "--file", str(file))
    assert refused.status == 1
    assert (
        refused.errors == "pqbroker: line 1 was not written: the record is larger than the topic's max.message.bytes\n"
    )


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_partition_that_is_not_there_is_refused(shell: Shell, topic: str, command: str) -> None:
    refused = shell(command, topic, "--partition", "7")
    assert refused.status == 1
    assert refused.errors == f"pqbroker: topic {topic} has no partition 7: its 2 are 0 to 1\n"


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("beginning", "abcd"),
        ("end", ""),
        ("2", "cd"),
        ("4", ""),
        ("1h", "abcd"),
        ("0ms", ""),
        ("1999-12-31", "abcd"),
        ("30000d", "abcd"),
    ],
)
def test_reading_starts_where_it_is_told(shell: Shell, filled: str, start: str, values: str) -> None:
    read = shell("consume", filled, "--from", start, "--partition", "0")
    assert (read.status, read.output) == (0, "".join(f"{value}\n" for value in values))


def test_an_offset_counts_in_each_partition_as_far_as_it_goes(shell: Shell, filled: str) -> None:
    assert shell("consume", filled, "--from", "3").output == "d\n"


def test_an_offset_that_no_partition_holds_is_refused(shell: Shell, filled: str) -> None:
    refused = shell("consume", filled, "--from", "9")
    assert refused.status == 1
    assert f"{filled}-0 holds 0 to 4, {filled}-1 holds 0 to 1" in refused.errors


def test_a_limit_ends_the_reading(shell: Shell, filled: str) -> None:
    read = shell("consume", filled, "--limit", "2", "--partition", "0", "--follow", "--json").objects
    assert [record["value"] for record in read] == ["a", "b"]


def test_a_group_goes_on_where_it_stopped(shell: Shell, filled: str) -> None:
    first = shell("consume", filled, "--group", f"{filled}-group", "--limit", "3").output.splitlines()
    rest = shell("consume", filled, "--group", f"{filled}-group").output.splitlines()
    assert (len(first), sorted(first + rest)) == (3, ["a", "b", "c", "d", "e"])
    assert shell("consume", filled, "--group", f"{filled}-group").output == ""


def test_a_new_group_may_start_at_the_end(shell: Shell, filled: str) -> None:
    assert shell("consume", filled, "--group", f"{filled}-late", "--from", "end").output == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "yesterday"], "--from 'yesterday': give beginning, end, an offset (42)"),
        (["--group", "g", "--partition", "0"], "--group and --partition do not go together"),
        (["--group", "g", "--from", "3"], "`pqbroker group reset`"),
        (["--group", "g", "--last", "3"], "--group and --last do not go together: "),
        (["--until", "end", "--follow"], "--until and --follow do not go together: "),
        (["--last", "3", "--from", "end"], "--last and --from do not go together: "),
        (["--grep", "/(/"], "--grep: regex is '(', which is no regular expression"),
        (["--where", "="], "--where: where[0] is '='; give PATH or PATH = VALUE"),
        (["--grep", ""], "--grep: text is empty; give what is looked for"),
        (["--format", "{name}"], "--format has no field {name}; it has {topic}"),
        (["--limit", "0"], "greater than or equal to 1"),
        (["--format", "xml"], "'xml' is not one of"),
    ],
)
def test_reading_must_make_sense(our_shell: Shell, options: list[str], words: str) -> None:
    refused = our_shell("consume", "any", *options)
    assert (refused.status, refused.output) == (2, "")
    assert words in refused.errors
    assert "example: pqbroker consume orders" in refused.errors


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--json", "--null", "x"], 2, "--json does not go with --key-separator and --null"),
        (["--header", "source"], 2, "--header 'source': give NAME=VALUE"),
        (["--key-separator", ""], 2, "--key-separator is empty"),
        (["--acks", "2"], 2, "'2' is not one of"),
        (["--file", "/no/such/file"], 1, "cannot read /no/such/file: No such file"),
    ],
)
def test_writing_must_make_sense(our_shell: Shell, options: list[str], status: int, words: str) -> None:
    refused = our_shell("produce", "any", *options)
    assert (refused.status, refused.output) == (status, "")
    assert words in refused.errors


def test_the_last_records_are_printed_by_time(shell: Shell, filled: str) -> None:
    assert shell("consume", filled, "--last", "2").output == "d\ne\n"
    assert shell("consume", filled, "--last", "9", "--partition", "1").output == "e\n"


def test_reading_ends_before_a_position(shell: Shell, filled: str) -> None:
    assert shell("consume", filled, "--until", "2", "--partition", "0").output == "a\nb\n"
    assert shell("consume", filled, "--until", "30000d").output == ""
    assert shell("consume", filled, "--from", "2", "--until", "1h").output == ""


def test_topics_may_be_several_and_patterns(our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path) -> None:
    first, second = fresh_name(), fresh_name()
    for name in (first, second):
        write(our_shell, tmp_path, name, name.encode())
    assert sorted(our_shell("consume", first, second, first).output.split()) == sorted([first, second])
    assert our_shell("consume", f"{first[:-1]}?").output == f"{first}\n"
    refused = our_shell("consume", "zzz-*")
    assert (refused.status, refused.output) == (1, "")
    assert "no topic matches 'zzz-*'" in refused.errors


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--grep", "/^.\"a\": 1/"], [1]),
        (["--grep", "/NO json/i"], [4]),
        (["--grep", '"a": '], [1, 2, 3]),
        (["--key", "k4"], [4]),
        (["--header", "h"], []),
        (["--where", "list[1].name contains x"], [3]),
        (["--grep", "k2"], [2]),
        (["--where", "a=2"], [2]),
        (["--where", "a>=2"], [2, 3]),
        (["--where", "list[1].name=x"], [3]),
        (["--where", "list"], [3]),
        (["--where", "a!=2", "--where", "a<3"], [1]),
        (["--where", "a>1", "--limit", "1"], [2]),
    ],
)
def test_records_are_chosen_by_what_they_hold(
    our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path, options: list[str], values: list[int]
) -> None:
    topic = fresh_name()
    lines = b'k1|{"a": 1}\nk2|{"a": 2}\nk3|{"a": 3, "list": [0, {"name": "x"}]}\nk4|no JSON\n'
    write(our_shell, tmp_path, topic, lines, "--key-separator", "|")
    keys = our_shell("consume", topic, "--format", "key", *options).output.split()
    assert keys == [f"k{value}" for value in values]


def test_a_template_names_the_parts_of_a_line(our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path) -> None:
    topic = fresh_name()
    write(our_shell, tmp_path, topic, b"k=v", "--key-separator", "=", "--header", "h=1")
    form = r"{topic}/{partition}/{offset}\t{key}={value} {headers} {{"
    assert our_shell("consume", topic, "--format", form).output == f"{topic}/0/0\tk=v h=1 {{{{\n"
    assert our_shell("consume", topic, "--format", "key-value").output == "k\tv\n"


def test_a_field_of_a_template_may_have_a_width(
    our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, lines = fresh_name(), tmp_path / "lines"
    lines.write_bytes("ab:é\n".encode() + b"toolong:v\n")
    assert our_shell("produce", topic, "-f", str(lines), "-k", ":", "--partition", "0").status == 0
    for form, shown in (
        ("{key:>4}|{value}", "  ab|é\ntoolong|v\n"), ("{key:4}|", "ab  |\ntoolong|\n"),
        ("{key:*^5}{offset:3}", "*ab**  0\ntoolong  1\n"), ("{offset:03}", "000\n001\n"),
        ("{value:>3}", "  é\n  v\n"), (r"{key}\n", "ab\n\ntoolong\n\n"),
    ):  # fmt: skip
        assert our_shell("consume", topic, "--format", form).output == shown
    said = our_shell("consume", topic, "--format", "{key:1001}")
    assert (said.status, "the most allowed is 1000" in said.errors) == (2, True)


def test_a_search_by_the_broker_prints_what_the_command_would_find_itself(
    our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_name()
    assert our_shell("topic", "create", topic, "--partitions", "2").status == 0
    for partition in ("0", "1"):
        lines = "".join(
            json.dumps({"key": f"k{n}", "value": json.dumps({"n": n}), "headers": [{"key": "h", "value": str(n % 2)}]})
            + "\n"
            for n in range(6)
        )
        file = tmp_path / partition
        file.write_text(lines)
        written = our_shell("produce", topic, "--file", str(file), "--json", "--partition", partition)
        assert written.status == 0, written.errors
    monkeypatch.setattr(searching, "LIMIT_AT_ONCE", 2)
    asked: list[str] = []
    learnt = http_address.learnt_http

    def noted(cluster: Cluster) -> str | None:
        asked.append(learnt(cluster) or "")
        return asked[-1]

    for options in (
        ["--where", "n >= 3"], ["--grep", "/^k[0-4]$/", "--header", "h=1"], ["--key", "k5", "--from", "1"],
        ["--grep", '"n": ', "--from", "1", "--until", "4", "--partition", "1"], ["--header", "h", "--until", "2"],
        ["--where", "n", "--format", "{topic} {partition} {offset} {timestamp} {key} {value} {headers}"],
    ):  # fmt: skip
        monkeypatch.setattr(searching, "learnt_http", noted)
        searched = our_shell("consume", topic, *options)
        monkeypatch.setattr(searching, "learnt_http", lambda cluster: None)
        scanned = our_shell("consume", topic, *options)
        assert (searched.status, scanned.status) == (0, 0), searched.errors
        assert sorted(searched.output.splitlines()) == sorted(scanned.output.splitlines()), options
        assert searched.output
    assert len(asked) == 6
    assert all(asked)


def test_filters_are_the_same_at_every_broker(shell: Shell, filled: str) -> None:
    assert sorted(shell("consume", filled, "--grep", "/^[B-E]$/i", "--until", "3").output.split()) == ["b", "c", "e"]
    assert shell("consume", filled, "--grep", "x").output == ""


def test_a_broker_that_does_not_search_is_read(
    our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_name()
    write(our_shell, tmp_path, topic, b"a\nb\n")
    monkeypatch.setattr(searching, "learnt_http", lambda cluster: "127.0.0.1:1")
    found = our_shell("consume", topic, "--grep", "b")
    assert (found.status, found.output) == (0, "b\n")
    assert "this command reads all records itself" in found.errors
