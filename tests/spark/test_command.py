"""`pqbroker-pipeline land` says in a line what is wrong, before Spark is started, and shows what is right."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.pipeline.__main__ import main
from pqbroker.pipeline.requirements import JARS_VARIABLE
from tests.spark.topics import Topics
from tests.support.serving import Served
from tests.support.waiting import wait_until

STARTS_WITHIN_S = 300.0
INCUBATOR = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
WRONG = {
    "no topic": (["land", "--to", "lake"], "the following arguments are required: TOPIC"),
    "no directory": (["land", "events"], "the following arguments are required: --to"),
    "no command": ([], "the following arguments are required: COMMAND"),
    "schema alone": (
        ["land", "events", "--to", "lake", "--schema", "id INT"],
        "--format json and --schema go together",
    ),
    "JSON alone": (["land", "events", "--to", "lake", "--format", "json"], "--format json and --schema go together"),
    "port": (["land", "events", "--to", "lake", "--broker", "here"], "'here' is not HOST:PORT"),
    "port's number": (["land", "events", "--to", "lake", "--broker", "here:70000"], "'here:70000' is not HOST:PORT"),
    "port's digits": (["land", "events", "--to", "lake", "--broker", "here:²"], "'here:²' is not HOST:PORT"),
    "URI": (["land", "events", "--to", "s3://bucket/lake"], "s3://bucket/lake is a URI; rows go to a directory"),
    "file's URI": (["land", "events", "--to", "file:/lake"], "file:/lake is a URI"),
    "interval": (["land", "events", "--to", "lake", "--interval", "-1"], "-1 is not between 0 and 86400"),
    "no interval": (["land", "events", "--to", "lake", "--interval", "x"], "x is not between 0 and 86400"),
    "no rows": (["land", "events", "--to", "lake", "--batch-rows", "x"], "x is not a count of at least 1"),
    "rows": (["land", "events", "--to", "lake", "--batch-rows", "0"], "0 is not a count of at least 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_named_and_a_right_line_shown(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, text = WRONG[case]
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    said = capsys.readouterr().err
    assert text in said
    assert "for example: pqbroker-pipeline land events --to ./lake --once" in said


def test_a_broker_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["land", "events", "--to", str(tmp_path), "--broker", "127.0.0.1:1"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("pqbroker-pipeline: no broker at 127.0.0.1:1: Connection refused; start one with")


def test_a_name_that_no_host_can_have_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["land", "events", "--to", str(tmp_path), "--broker", "a..b:9092"]) == 1
    assert "\npqbroker-pipeline: no broker at a..b:9092: " in capsys.readouterr().err


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["land", "events", "--to", str(tmp_path / "file" / "lake")]) == 1
    assert re.search(r"cannot write to .*/file/lake: Not a directory; name another", capsys.readouterr().err)


@pytest.fixture
def topic(broker: Served, fresh_name: Callable[[], str]) -> str:
    """One that exists: jobs look for theirs before Spark starts."""
    name = fresh_name()
    HttpCalls(lambda: broker.http or "").ask("POST", "/v1/topics", {"name": name})
    return name


def test_a_job_that_is_stopped_while_spark_starts_leaves_no_process(
    broker: Served, topic: str, tmp_path: Path
) -> None:
    started, java = tmp_path / "started", shutil.which("java")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text(f'#!/bin/sh\ntouch {started}\nexec {java} "$@"\n')
    (tmp_path / "bin" / "java").chmod(0o755)
    lake = tmp_path / "lake"
    command = [sys.executable, "-P", "-m", "pqbroker.pipeline", "land", topic, "--to", str(lake)]
    job = subprocess.Popen(
        [*command, "--broker", broker.kafka], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=os.environ | {"JAVA_HOME": str(tmp_path)}, start_new_session=True,
    )  # fmt: skip
    try:
        wait_until(started.exists, "Java started", STARTS_WITHIN_S)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            job.send_signal(number)
        said, _ = job.communicate(timeout=STARTS_WITHIN_S)  # ends with the last process that can write there
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, said
    *waits, last = said.replace(INCUBATOR, b"").splitlines()
    assert last == b"stopped by a signal while Spark was starting; nothing was read or written", said
    assert waits[0] == f"land topic {topic} into {lake}: looking for the broker, Java and Spark's jars".encode()


def test_missing_java_and_jars_are_named(
    topics: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["land", topic, "--to", str(tmp_path / "lake"), "--broker", topics.address]
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    assert main(command) == 1
    assert "has no jar of spark-sql-kafka" in capsys.readouterr().err
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(command) == 1
    assert "install Java 17" in capsys.readouterr().err
