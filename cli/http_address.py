"""The HTTP address that belongs to a command's broker: the one given, or the one that the broker itself names.

A profile gives its addresses as the variables of the environment do, in their place.

    --http or PQBROKER_HTTP     --broker or PQBROKER_BROKER     asked
    given                       not named                       the address given
    given                       named                           the address given, if both are of one cluster
    not given                   named                           the address that this broker advertises
    not given                   not named                       127.0.0.1:8092
"""

from typing import Final

from pqbroker.cli.connection_security import HTTPS_SCHEME, http_login
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.configs import BROKER, describe_configs
from pqbroker.cli.kafka.link import DEFAULT_KAFKA, parse_brokers, parse_host
from pqbroker.cli.profile_choice import broker_of_surroundings, of_profile
from pqbroker.cli.refusals import CommandError
from pqbroker.conf.addresses import Address

HTTP_CONFIG: Final = "pqbroker.advertised.http"
"""Config of a node: its HTTP address, as clients reach it."""
HTTP_PORT: Final = 8092


class UnsetAddress(str):
    """The address of an option that was not given."""

    __slots__ = ()


class CredentialsKept(CommandError):
    """The login is not sent to the HTTP address that a broker names: the user has not named its host."""


DEFAULT_HTTP: Final = UnsetAddress(f"127.0.0.1:{HTTP_PORT}")


def named_broker(broker: str | None) -> str | None:
    """Return the Kafka address that the user has named, by an option, a profile or the environment; None: none."""
    if broker is not None and broker != DEFAULT_KAFKA:
        return broker
    return broker_of_surroundings()


def learnt_http(cluster: Cluster) -> str | None:
    """Return the HTTP address that a broker advertises; None where it has none, as Apache Kafka. CredentialsKept."""
    node = cluster.nodes()[0]
    found = describe_configs(cluster, BROKER, str(node), [HTTP_CONFIG], node)
    http = next((each.value for each in found if each.name == HTTP_CONFIG and each.value), None)
    if http is not None:
        _check_credentials(http, cluster.brokers)
    return http


def parse_http(option: str, text: str) -> tuple[Address, bool]:
    """[https://]HOST or [https://]HOST:PORT, and whether it is encrypted; WrongInput, which names the option."""
    is_encrypted = text.lower().startswith(HTTPS_SCHEME)
    host = text[len(HTTPS_SCHEME) :].rstrip("/") if is_encrypted else text
    return parse_host(option, host, HTTP_PORT), is_encrypted


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
            f"the broker at {named}{of_profile()} names no HTTP address, so this is for a pqbroker that is "
            "started with one: give it with --http HOST:PORT, or another broker"
        )
    return found, cluster_id


def _check_credentials(http: str, broker: str) -> None:
    """CredentialsKept where a password or a token would go to a host that the user has not named."""
    address, _ = parse_http("--http", http)
    if http_login() and address.host not in {each.host for each in parse_brokers(broker)}:
        raise CredentialsKept(
            f"the broker at {broker} names the HTTP address {http}, another host: the password is not sent there; "
            f"give --http {http} to send it"
        )
