"""docker/Dockerfile and docker/compose.yaml, as far as they can be judged without an engine: what they name is there,
and what they run does serve."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from pqbroker.broker.ground.listeners import advertised_addresses, parse_address, parse_listeners
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import parse
from pqbroker.conf.load import read_texts
from tests.house.sources import PACKAGES, ROOT

DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]


def instructions(text: str = DOCKERFILE) -> Iterator[tuple[str, str]]:
    """Keyword and arguments of every instruction, continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", text))
    for line in filter(None, joined.splitlines()):
        keyword, _, rest = line.partition(" ")
        yield keyword, rest.strip()


def of(keyword: str) -> list[str]:
    return [rest for found, rest in instructions() if found == keyword]


def copied() -> list[str]:
    """What is copied out of the repository."""
    return [
        source.rstrip("/")
        for rest in of("COPY")
        if not rest.startswith("--from=")
        for source in shlex.split(rest)[:-1]
    ]


def ignored(path: str) -> bool:
    """Whether Docker leaves a path out of the context: the last line that matches decides."""
    verdict = False
    for line in (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and (path == pattern or path.startswith(pattern + "/") or pattern == "*"):
            verdict = not line.startswith("!")
        if line.startswith("**/") and fnmatch(path, f"*{line[2:]}*"):
            verdict = True
    return verdict


def test_what_the_image_is_built_from_is_there_and_not_ignored() -> None:
    for path in copied():
        assert (ROOT / path).exists(), path
        assert not ignored(path), path
    assert set(PACKAGES) <= set(copied())
    for path in (".git", ".venv", "tests", "data", "docker", "src/pqbroker/__pycache__", "pipeline/target"):
        assert ignored(path), path


@pytest.mark.timeout(300)
def test_the_package_is_built_from_what_is_copied_alone(tmp_path: Path) -> None:
    context, wheels = tmp_path / "context", tmp_path / "wheels"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *copied()]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, context / name, follow_symlinks=False)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(context)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    zipfile.ZipFile(next(wheels.glob("pqbroker-*.whl"))).extractall(tmp_path / "installed")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-m", "pqbroker", "--version"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.stdout.startswith("pqbroker "), run.stderr
    assert {path.name for path in (tmp_path / "installed" / "pqbroker").iterdir() if path.is_dir()} >= set(PACKAGES)


def test_the_stages_of_the_image_are_known_and_its_base_has_a_version() -> None:
    names = [rest.partition(" AS ")[2] for rest in of("FROM")]
    assert {rest.split()[0].removeprefix("--from=") for rest in of("COPY") if "--from=" in rest} <= set(names)
    assert all(re.match(r"python:3\.\d+-slim", rest) for rest in of("FROM"))


def test_the_image_runs_as_nobody_special_with_its_data_in_a_volume() -> None:
    user = of("USER")[-1]
    assert int(user.partition(":")[0]) >= 1000
    assert of("VOLUME") == ["/data"]
    assert re.search(r"install -d -o pqbroker -g pqbroker /data", DOCKERFILE)
    assert DOCKERFILE.index("install -d") < DOCKERFILE.index("VOLUME")


def test_every_form_that_is_run_is_a_json_list() -> None:
    """A shell in between would keep the broker from its SIGTERM."""
    for keyword in ("ENTRYPOINT", "CMD"):
        assert all(isinstance(json.loads(rest), list) for rest in of(keyword))


@pytest.fixture
def serving(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The addresses of a broker run with arguments as a container gets them, but for its directory and ports."""
    arguments = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", one) for one in request.param]
    arguments = [one.replace("/data", str(tmp_path / "data")) for one in arguments]
    environment = os.environ | SERVICES["broker"]["environment"]
    if not any("://" in one for one in arguments):
        environment.pop("PQBROKER_ADVERTISED_LISTENERS")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pqbroker", *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    word, *fields = process.stdout.readline().split()
    assert word == "ready"
    yield dict(field.split("=", 1) for field in fields)
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()


@pytest.mark.parametrize("serving", [json.loads(of("CMD")[0]), SERVICES["broker"]["command"]], indirect=True)
def test_what_the_image_and_the_compose_file_run_serves_and_is_healthy(serving: dict[str, str]) -> None:
    check = json.loads(of("HEALTHCHECK")[0].partition("CMD ")[2])
    assert check[:2] == ["python", "-c"]
    code = check[2].replace("127.0.0.1:8092", serving["http"])
    assert code != check[2]
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = check[2].replace("127.0.0.1:8092", "127.0.0.1:9")
    assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode != 0
    with urllib.request.urlopen(f"http://{serving['http']}/metrics") as answer:
        assert b"pqbroker_topics 0.0" in answer.read()


def options(arguments: list[str]) -> dict[str, str]:
    return dict(one.removeprefix("--").split("=", 1) for one in arguments[1:])


def test_clients_of_the_host_and_of_the_network_are_told_where_they_reach_the_broker() -> None:
    broker = SERVICES["broker"]
    listeners = parse_listeners(options(broker["command"])["kafka"])
    settings = parse(BrokerSettings, read_texts(None, broker["environment"]))
    told = advertised_addresses(listeners, settings.advertised_listeners)
    published = {int(port.split(":")[-1]): port.rpartition(":")[0] for port in broker["ports"]}
    by_name = {listener.name: listener.address for listener in listeners}
    assert {address.host for address in by_name.values()} == {"0.0.0.0"}
    assert published[by_name["HOST"].port] == f"127.0.0.1:{told['HOST'].port}"
    assert told["HOST"].host == "localhost"
    assert (told["NETWORK"].host, told["NETWORK"].port) == ("broker", by_name["NETWORK"].port)
    assert by_name["NETWORK"].port not in published
    exposed = set(map(int, of("EXPOSE")[0].split()))
    assert {address.port for address in by_name.values()} <= exposed


def test_files_volumes_and_services_that_the_compose_file_names_are_there() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DOCKER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume
        assert set(service.get("depends_on", ())) <= set(SERVICES), name
        assert ":" in service["image"] or "build" in service, f"{name} has no version"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
    build = SERVICES["broker"]["build"]
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve() == DOCKER / "Dockerfile"


def test_prometheus_asks_the_broker() -> None:
    config = yaml.safe_load((DOCKER / "prometheus.yaml").read_text(encoding="utf-8"))
    targets = [
        parse_address(target)
        for job in config["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    ]
    port = parse_address(options(SERVICES["broker"]["command"])["http"]).port
    assert [(target.host, target.port) for target in targets] == [("broker", port)]
    mounted = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert options(["", *SERVICES["prometheus"]["command"]])["config.file"] in mounted


def test_grafana_finds_prometheus_and_its_dashboards() -> None:
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text(encoding="utf-8"))
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    provider = yaml.safe_load((DOCKER / "grafana/provisioning/dashboards/pqbroker.yaml").read_text(encoding="utf-8"))
    mounts = dict(volume.split(":")[1::-1] for volume in SERVICES["grafana"]["volumes"])
    place = provider["providers"][0]["options"]["path"]
    assert mounts[place] == "./grafana/dashboards"
    assert mounts["/etc/grafana/provisioning"] == "./grafana/provisioning"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DOCKER / mounts[place] / home.removeprefix(place + "/")).exists()
