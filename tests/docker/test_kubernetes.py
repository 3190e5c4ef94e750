"""docker/kubernetes.yaml: valid by Kubernetes' own schemas, and what it names is what the broker and the image have."""

import copy
import os
import urllib.request
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pqbroker.broker.ground.listeners import advertised_addresses, parse_listeners
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import parse
from pqbroker.conf.load import read_texts
from pqbroker.testing import memory_broker
from tests.docker.test_image import instructions, options
from tests.house.sources import ROOT

SERVICE, SET = yaml.safe_load_all((ROOT / "docker" / "kubernetes.yaml").read_text(encoding="utf-8"))
POD: dict[str, Any] = SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
NAMESPACE = "shop"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@pytest.mark.parametrize("document", [SERVICE, SET], ids=["service", "set"])
def test_a_document_is_valid_and_has_no_unknown_field(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_validator_refuses_what_is_wrong() -> None:
    wrong = copy.deepcopy(SET)
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenessProb"):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_a_broker_answers_at_the_path_of_each_probe() -> None:
    with memory_broker() as running:
        for path in {CONTAINER[probe]["httpGet"]["path"] for probe in PROBES}:
            with urllib.request.urlopen(f"http://{running.http}{path}") as answer:
                assert answer.status == 200
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/health"


def test_clients_are_sent_to_the_address_that_the_service_has() -> None:
    texts = {one["name"]: one.get("value", NAMESPACE) for one in CONTAINER["env"]}
    texts = {name: value.replace("$(NAMESPACE)", NAMESPACE) for name, value in texts.items()}
    own = {name: value for name, value in texts.items() if name.startswith("PQBROKER_")}
    settings = parse(BrokerSettings, read_texts(None, own))
    listeners = parse_listeners(options(CONTAINER["args"])["kafka"])
    (told,) = advertised_addresses(listeners, settings.advertised_listeners).values()
    name = f"{SERVICE['metadata']['name']}.{NAMESPACE}.svc"
    ports = {one["name"]: one for one in SERVICE["spec"]["ports"]}
    inside = {one["name"]: one["containerPort"] for one in CONTAINER["ports"]}
    assert str(told) == f"{name}:{ports['kafka']['port']}"
    assert settings.advertised_http == f"{name}:{ports['http']['port']}"
    assert name in settings.http_hosts
    assert inside == {one["targetPort"]: one["port"] for one in ports.values()}
    assert [listener.address.port for listener in listeners] == [inside["kafka"]]
    assert options(CONTAINER["args"])["http"] == f"0.0.0.0:{inside['http']}"
    assert {CONTAINER[probe]["httpGet"]["port"] for probe in PROBES} == {"http"}


def test_the_selectors_choose_the_pod() -> None:
    labels = SET["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == SET["spec"]["selector"]["matchLabels"] == labels
    assert SET["spec"]["serviceName"] == SERVICE["metadata"]["name"]
    assert SET["spec"]["replicas"] == 1, "one node: another one would be a cluster of its own"


def test_the_data_is_in_the_volume_that_the_image_s_user_may_write() -> None:
    mounts = {one["mountPath"]: one["name"] for one in CONTAINER["volumeMounts"]}
    (claim,) = SET["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == mounts["/data"]
    assert os.path.dirname(options(CONTAINER["args"])["data"]) == "/data"
    users = [rest for keyword, rest in instructions() if keyword == "USER"]
    security = POD["securityContext"]
    assert users[-1] == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert security["fsGroup"] == security["runAsGroup"]
