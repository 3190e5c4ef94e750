"""`pqbroker-pipeline` before Spark: help without PySpark and Java, a first line at once, the broker's address."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker import pipeline
from pqbroker.pipeline.__main__ import COMMANDS, main
from pqbroker.pipeline.requirements import SparkUnavailableError
from pqbroker.security.profiles import Profile, Profiles, change_profiles
from pqbroker.testing import memory_broker
from tests.support.serving import served

FIRST_LINE_WITHIN_CPU_S = 2.0
"""CPU time of the whole job, which fails right after its first line: a busy machine does not lengthen it."""
JOBS = {
    "land": ["events", "--to", "DIR"],
    "snapshot": ["events", "--to", "DIR"],
    "copy": ["events", "others", "--state", "DIR"],
    "replay": ["DIR/lines.jsonl", "events", "--state", "DIR"],
    "redrive": ["events", "--state", "DIR"],
    "infer": ["events"],
}
WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from pqbroker.pipeline.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def run_without_pyspark(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in an interpreter that finds no PySpark."""
    command = [sys.executable, "-c", WITHOUT_PYSPARK, *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["land", "--help"]])
def test_help_needs_neither_pyspark_nor_java(arguments: list[str]) -> None:
    done = run_without_pyspark(*arguments, JAVA_HOME="/nowhere")
    assert done.returncode == 0, done.stderr
    assert "usage: pqbroker-pipeline" in done.stdout


def test_missing_pyspark_is_named_with_its_cure_in_three_lines(tmp_path: Path) -> None:
    with served() as broker:
        done = run_without_pyspark("land", "events", "--to", str(tmp_path), PQBROKER_BROKER=broker.kafka)
    assert done.returncode == 1
    first, missing, cure, then = done.stderr.splitlines()
    assert first == f"land topic events into {tmp_path}: looking for the broker, Java and Spark's jars"
    assert missing.startswith("pqbroker-pipeline: PySpark is missing")
    assert cure == f"install it: {sys.executable} -m pip install pyspark==4.2.0"
    assert then.startswith("then run the command again")


def test_every_job_is_tried() -> None:
    assert set(JOBS) | {"status"} == set(COMMANDS)


@pytest.mark.parametrize("job", COMMANDS)
def test_wrong_usage_of_a_job_shows_its_own_example(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([job, "--none"])
    program, _, example = capsys.readouterr().err.splitlines()[-2].partition(": ")[2].partition(" ")
    assert (program, example.split()[0]) == ("pqbroker-pipeline", job)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PQBROKER_BROKER", "127.0.0.1:1")
    main(example.split())  # anything wrong in it would exit


def test_the_broker_of_the_target_is_looked_for_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served() as broker:
        places = ["--broker", broker.kafka, "--to-broker", "127.0.0.1:1"]
        assert main(["copy", "events", "others", "--state", str(tmp_path), *places]) == 1
    assert "no broker at 127.0.0.1:1: Connection refused" in capsys.readouterr().err


def test_the_broker_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PQBROKER_BROKER", "127.0.0.1:2")
    assert main(["land", "events", "--to", str(tmp_path)]) == 1
    assert "no broker at 127.0.0.1:2: Connection refused" in capsys.readouterr().err
    assert main(["land", "events", "--to", str(tmp_path), "--broker", "127.0.0.1:1"]) == 1
    assert "no broker at 127.0.0.1:1: Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize("job", JOBS)
def test_the_first_line_comes_before_anything_slow(job: str, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").touch()
    arguments = [each.replace("DIR", str(tmp_path)) for each in JOBS[job]]
    command = [sys.executable, "-P", "-m", "pqbroker.pipeline", job, *arguments]
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([*command, "--broker", "127.0.0.1:1"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(f"{job} ")
    assert "no broker at" in process.communicate()[1]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.ru_utime - begun.ru_utime + ended.ru_stime - begun.ru_stime < FIRST_LINE_WITHIN_CPU_S


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Give back the handlers that a job sets."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("java_ended", [True, False])
@pytest.mark.usefixtures("own_signals")
def test_a_signal_while_spark_starts_is_named_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, java_ended: bool
) -> None:
    """Ctrl-C goes to the whole group of processes: Java ends, and that is no fault of its version."""

    class Session:
        def stop(self) -> None:
            """Nothing runs."""

    def start(*_: object, **__: object) -> Session:
        os.kill(os.getpid(), signal.SIGTERM)
        if java_ended:
            raise SparkUnavailableError("Spark's Java process ended at its start\nit needs Java 17 or newer")
        return Session()

    monkeypatch.setattr("pqbroker.pipeline.session.start_session", start)
    with memory_broker() as broker:
        broker.create_topic("events")
        status = main(["land", "events", "--to", str(tmp_path), "--broker", broker.kafka, "--quiet"])
    said = capsys.readouterr().err
    assert status == (1 if java_ended else 0)
    assert "stopped by a signal while Spark was starting; nothing was read or written" in said
    assert "Java 17" not in said


def test_java_s_options_are_whole_in_a_directory_with_a_space(tmp_path: Path) -> None:
    """A clone in `My Projects` started a Java whose main class was the second half of that path."""
    place = tmp_path / "My Projects"
    place.mkdir()
    (place / "src").symlink_to(Path(pipeline.__file__).parents[2])
    script = "from pqbroker.pipeline import __main__ as m; print(m._SPARK['spark.driver.extraJavaOptions'])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env=os.environ | {"PYTHONPATH": str(place / "src")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (option,) = done.stdout.split()
    assert option.endswith("/My%20Projects/src/pqbroker/pipeline/log4j2.properties")


def test_a_profile_names_the_broker_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PQBROKER_PROFILE", "PQBROKER_BROKER", "PQBROKER_HTTP", "PQBROKER_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def add(profiles: Profiles) -> Profiles:
        gone = profiles.having(Profile("gone", "127.0.0.1:1,127.0.0.1:2"), is_used=True)
        return gone.having(Profile("login", "127.0.0.1:1", user="ann"), is_used=False)

    change_profiles(os.environ, add)
    assert main(["infer", "t", "--quiet"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "profile gone: 127.0.0.1:1"
    assert "no broker at 127.0.0.1:1" in said[1]
    assert main(["infer", "t", "--quiet", "--broker", "127.0.0.1:3"]) == 1
    assert "profile" not in capsys.readouterr().err
    for words, reason in (
        (["--profile", "none-such"], "no profile 'none-such'"), (["--profile", "login"], "logs in as ann; a job needs"),
        (["--profile", "gone", "--broker", "127.0.0.1:3"], "--profile does not go with --broker"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(["infer", "t", *words])
        assert ended.value.code == 2
        assert reason in capsys.readouterr().err
