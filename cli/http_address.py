"""The HTTP address that belongs to a command's broker: the one given, or the one that the broker itself names.

    --http or PQBROKER_HTTP     --broker or PQBROKER_BROKER     asked
    given                       not named                       the address given
    given                       named                           the address given, if both are of one cluster
    not given                   named                           the address that this broker advertises
    not given                   not named                       127.0.0.1:8092
"""

import os
from typing import Final

from pqbroker.cli.connection_security import HTTPS_SCHEME, security
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.configs import BROKER, describe_configs
from pqbroker.cli.kafka.link import DEFAULT_KAFKA, parse_brokers
from pqbroker.cli.refusals import CommandError

HTTP_CONFIG: Final = "pqbroker.advertised.http"
"""Config of a node: its HTTP address, as clients reach it."""
BROKER_VARIABLE: Final = "PQBROKER_BROKER"
HTTP_PORT: Final = 8092


class UnsetAddress(str):
    """The address of an option that was not given."""

    __slots__ = ()


DEFAULT_HTTP: Final = UnsetAddress(f"127.0.0.1:{HTTP_PORT}")


def named_broker(broker: str | None) -> str | None:
    """Return the Kafka address that the user has named, by an option or the environment; None: none."""
    if broker is not None and broker != DEFAULT_KAFKA:
        return broker
    return os.environ.get(BROKER_VARIABLE) or None


def learnt_http(cluster: Cluster) -> str | None:
    """Return the HTTP address that a broker advertises; None where it has none, as Apache Kafka."""
    node = cluster.nodes()[0]
    found = describe_configs(cluster, BROKER, str(node), [HTTP_CONFIG], node)
    return next((each.value for each in found if each.name == HTTP_CONFIG and each.value), None)


def http_address(given: str, broker: str | None) -> tuple[str, str | None]:
    """Return the HTTP address to ask, and the id that its cluster has to have; None: any. CommandError."""
    named = named_broker(broker)
    if named is None:
        return given, None
    with Cluster(named) as cluster:
        cluster_id = cluster.about().id
        if not isinstance(given, UnsetAddress):
            return given, cluster_id
        found = learnt_http(cluster)
    if found is None:
        raise CommandError(
            f"the broker at {named} names no HTTP address, so this is for a pqbroker that is started with one: "
            "give it with --http HOST:PORT, or another broker"
        )
    _check_credentials(found, named)
    return found, cluster_id


def _check_credentials(http: str, broker: str) -> None:
    """CommandError where a password would go to a host that the user has not named."""
    host = http.removeprefix(HTTPS_SCHEME).rpartition(":")[0]
    if security().login is not None and host not in {address.host for address in parse_brokers(broker)}:
        raise CommandError(
            f"the broker at {broker} names the HTTP address {http}, another host: the password is not sent there; "
            f"give --http {http} to send it"
        )
