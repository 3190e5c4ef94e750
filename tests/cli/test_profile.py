"""Clusters by name: what a profile saves, when it counts, and where it is shown."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pqbroker.cli.confirmation import confirm
from pqbroker.cli.refusals import CommandError
from pqbroker.security.profiles import PROFILES_MAX, Profile, ProfileError, Profiles, change_profiles, load_profiles
from pqbroker.testing import memory_broker
from tests.cli.shell import Shell, run
from tests.support.cli_page import KEYS

NOBODY = "127.0.0.1:1"
"""An address that nothing answers at."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's config directory, in an environment without settings of ours."""
    for name in ("PQBROKER_PROFILE", "PQBROKER_BROKER", "PQBROKER_HTTP", "PQBROKER_COMMAND_CONFIG", "PQBROKER_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.fixture
def mine(home: Path, our_shell: Shell) -> Shell:
    """A shell with three profiles: `here` is the broker of the tests, nothing answers at `gone`, `other` has a file."""
    config = home.parent / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security."
        'plain.PlainLoginModule required username="ann" password="secret";\n'
    )
    for words in (
        ("here", "--broker", our_shell.kafka), ("gone", "--broker", NOBODY),
        ("other", "--broker", NOBODY, "--http", "127.0.0.1:2", "--command-config", str(config), "--user", "ann"),
    ):  # fmt: skip
        assert our_shell.raw("profile", "add", *words).status == 0
    return our_shell


def test_a_saved_profile_is_shown_without_what_its_file_holds(mine: Shell, home: Path) -> None:
    listed = {each["profile"]: each for each in mine.raw("profile", "list", "--json").objects}
    assert listed.keys() == {"here", "gone", "other"}
    assert listed["other"] == {
        "profile": "other", "broker": NOBODY, "http": "127.0.0.1:2",
        "command_config": str(home.parent / "client.properties"), "user": "ann", "in_use": False,
    }  # fmt: skip
    saved = home / "pqbroker" / "profiles.json"
    assert "secret" not in saved.read_text()
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert stat.S_IMODE(saved.parent.stat().st_mode) == 0o700


def test_json_has_the_keys_of_the_page(mine: Shell) -> None:
    for command, words in (
        ("add", ["new", "--broker", NOBODY]), ("use", ["here"]), ("list", []), ("show", []), ("remove", ["new"]),
    ):  # fmt: skip
        shown = mine.raw("profile", command, *words, "--json").objects
        assert ", ".join(shown[0]) == KEYS[f"profile {command}"]
    assert ", ".join(mine.raw("cluster", "health", "--json").object).startswith("broker, profile, healthy")


def test_every_kind_of_command_asks_the_cluster_of_the_profile(
    mine: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mine.raw("topic", "list", "--profile", "here").status == 0
    assert mine.raw("table", "list", "--profile", "here").status == 0  # its HTTP address is the one that it names
    monkeypatch.setenv("PQBROKER_PROFILE", "here")
    assert mine.raw("cluster", "info").status == 0
    assert mine.raw("table", "list").status == 0


def test_options_win_over_variables_with_addresses_those_over_profiles(
    mine: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mine.raw("profile", "use", "gone").status == 0
    assert "of profile gone (" in mine.raw("topic", "list").errors
    assert mine("topic", "list").status == 0
    assert mine.raw("topic", "list", "--profile", "here").status == 0
    monkeypatch.setenv("PQBROKER_PROFILE", "here")
    assert mine.raw("topic", "list").status == 0
    assert mine.raw("topic", "list", "--profile", "gone").status == 1
    monkeypatch.setenv("PQBROKER_BROKER", "127.0.0.1:3")
    said = mine.raw("topic", "list").errors
    assert "at 127.0.0.1:3 (" in said
    assert "profile" not in said
    assert mine.raw("topic", "list", "--profile", "here").status == 0
    assert mine.raw("profile", "show").output == "commands use no profile, because PQBROKER_BROKER is set\n"
    monkeypatch.delenv("PQBROKER_BROKER")
    assert mine.raw("profile", "show", "--json").object["chosen_by"] == "PQBROKER_PROFILE"
    monkeypatch.setenv("PQBROKER_PROFILE", "none")
    assert "profile" not in mine.raw("sql", "SELECT 1", "--http", NOBODY).errors
    assert mine.raw("profile", "show", "--json").object == {"profile": None, "chosen_by": "PQBROKER_PROFILE"}


def test_a_profile_takes_no_login_of_the_environment(mine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password of one cluster would go to another."""
    monkeypatch.setenv("PQBROKER_USER", "ann")
    monkeypatch.setenv("PQBROKER_PASSWORD", "secret")
    monkeypatch.setenv("PQBROKER_COMMAND_CONFIG", "/nowhere")
    assert mine.raw("topic", "list", "--profile", "here").status == 0
    said = mine.raw("topic", "list", "--profile", "here", "--user", "ann")
    assert "has no login; leave --user out" in said.errors


def test_a_profile_and_an_address_are_refused(mine: Shell) -> None:
    for option in ("--broker", "--http"):
        said = mine.raw("acl", "remove", "--topic", "t", "--yes", "--profile", "here", option, NOBODY)
        assert said.status == 2
        assert "--profile does not go with --broker and --http" in said.errors


def test_what_cannot_be_meant_is_refused(mine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, reason in (
        (["add", "here", "--broker", NOBODY], "profile here exists already; --replace replaces it"),
        (["add", "none", "--broker", NOBODY], "'none' is no name of a profile"),
        (["add", "../x", "--broker", NOBODY], "'../x' is no name of a profile"),
        (["add", "x", "--broker", "a b"], "--broker 'a b:9092' is no HOST:PORT"),
        (["add", "x", "--broker", NOBODY, "--http", "a:b:c"], "--http 'a:b:c' is no HOST:PORT"),
        (["add", "x", "--broker", NOBODY, "--command-config", "/nowhere"], "cannot read /nowhere"),
        (["add", "x"], "missing option '--broker'"),
        (["use", "her"], "no profile 'her'; `pqbroker profile add` makes one. Profiles: gone, here, other"),
        (["remove", "her"], "no profile 'her'"),
        (["show", "her"], "no profile 'her'"),
    ):
        said = mine.raw("profile", *words)
        assert said.status in (1, 2)
        assert reason in said.errors
    assert mine.raw("topic", "list", "--profile", "her").status == 2
    monkeypatch.setenv("PQBROKER_PROFILE", "her")
    assert "no profile 'her'" in mine.raw("topic", "list").errors
    assert mine("topic", "list").status == 0


def test_a_profile_that_is_removed_is_in_use_no_more(mine: Shell) -> None:
    assert mine.raw("profile", "use", "here").status == 0
    assert mine.raw("profile", "remove", "here").status == 0
    assert mine.raw("profile", "show").output.startswith("commands use no profile; ")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"format": 2, "used": null, "profiles": {}}', '{"format": 1, "used": null, "profiles": {"a": {}}}',
     '{"format": 1, "used": null, "profiles": {"a": {"broker": 1}}}', "[" * 100_000, "\udcff", '{"format": 1}',
     '{"format": 1, "used": [], "profiles": {"a": {"broker": "b", "password": "p"}}}'],
)  # fmt: skip
def test_a_file_that_is_none_of_ours_is_named_and_left_as_it_is(mine: Shell, home: Path, text: str) -> None:
    file = home / "pqbroker" / "profiles.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    for words in (["profile", "list"], ["profile", "add", "x", "--broker", NOBODY], ["topic", "list"]):
        said = mine.raw(*words)
        assert said.status == 1
        assert f"{file} is no file of profiles, or one of a newer version" in said.errors
    assert file.read_bytes() == text.encode(errors="surrogateescape")
    assert mine("topic", "list").status == 0


def test_a_file_that_others_may_write_is_refused(mine: Shell, home: Path) -> None:
    (home / "pqbroker" / "profiles.json").chmod(0o620)
    assert "is writable by others" in mine.raw("topic", "list", "--profile", "here").errors


def test_changes_of_two_processes_are_both_kept(home: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(home)}

    def add(number: int) -> None:
        made = Profile(f"p{number}", NOBODY)
        change_profiles(environment, lambda profiles: profiles.having(made, is_used=False))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(40)))
    assert len(load_profiles(environment).by_name) == 40


def test_profiles_have_a_most() -> None:
    full = Profiles({f"p{number}": Profile(f"p{number}", NOBODY) for number in range(PROFILES_MAX)})
    with pytest.raises(ProfileError, match="1000 profiles, the most allowed"):
        full.having(Profile("more", NOBODY), is_used=False)
    assert full.having(Profile("p1", "other:1"), is_used=False).get("p1").broker == "other:1"


def test_without_a_home_there_are_no_profiles(mine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME")
    assert mine("topic", "list").status == 0
    assert mine.raw("profile", "list").output.startswith("no profiles")
    assert "set HOME, or XDG_CONFIG_HOME" in mine.raw("profile", "add", "x", "--broker", NOBODY).errors


def test_health_and_questions_name_the_profile(
    mine: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mine.raw("cluster", "health", "--profile", "here").output.endswith(f"at {mine.kafka} of profile here\n")
    monkeypatch.setattr("sys.stdin", _Terminal())
    with pytest.raises(CommandError, match="nothing was changed"):
        confirm("delete orders with all records?", yes=False)
    assert capsys.readouterr().err == f"delete orders with all records? (profile here, {mine.kafka}) [y/N] "


class _Terminal:
    """A terminal at which somebody presses Enter."""

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return "\n"


def test_a_shell_completes_profiles_and_topics_of_a_profile(mine: Shell, home: Path) -> None:
    assert mine("topic", "create", "completed-by-profile").status == 0

    def offered(line: str) -> list[str]:
        number = str(len(line.split(" ")) - 1)
        said = run(COMP_WORDS=line, COMP_CWORD=number, _PQBROKER_COMPLETE="complete_bash", PQBROKER_PROFILE="",
                   XDG_CONFIG_HOME=str(home))  # fmt: skip
        return said.output.split()

    assert offered("pqbroker profile use h") == ["here"]
    assert offered("pqbroker topic list --profile o") == ["other"]
    assert offered("pqbroker topic describe --profile here completed-by") == ["completed-by-profile"]


def test_a_token_is_not_sent_to_a_host_that_the_user_has_not_named(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PQBROKER_TOKEN", "0123456789abcdef")
    with memory_broker({"pqbroker.advertised.http": "elsewhere.example:8092"}) as running:
        shell = Shell(running.kafka, capsys)
        health, top = shell("cluster", "health"), shell("top", "--count", "1", "--interval", "0.1")
    for said in (health, top):
        assert said.status == 0
        assert "is not sent there; give --http elsewhere.example:8092 to send it" in said.errors
