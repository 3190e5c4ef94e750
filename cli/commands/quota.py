"""`pqbroker quota`: quotas of users, client ids and addresses, of any Kafka broker."""

from collections.abc import Mapping
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.kafka.quotas import EVERY_OTHER, alter_quotas, describe_quotas, shown_entity
from pqbroker.cli.options import Broker, Json
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import WrongInput

app = Family("Show and change quotas of clients: bytes, processor time, partitions, connections.")

QuotaUser = Annotated[
    str | None,
    option("--for-user", metavar="NAME", help=f"User; {EVERY_OTHER} for those without a quota of their own."),
]
QuotaClientId = Annotated[
    str | None, option("--for-client-id", metavar="NAME", help=f"Client id; {EVERY_OTHER} for all others.")
]
QuotaAddress = Annotated[
    str | None, option("--for-ip", metavar="ADDRESS", help=f"Address; {EVERY_OTHER} for all others.")
]


@declare(app, "list", "pqbroker quota list --for-user ann")
def list_quotas(
    for_user: QuotaUser = None, for_client_id: QuotaClientId = None, for_ip: QuotaAddress = None,
    broker: Broker = DEFAULT_KAFKA, json: Json = False,
) -> None:  # fmt: skip
    """List quotas: all, or those of a user, a client id or an address."""
    with Cluster(broker) as cluster:
        found = describe_quotas(cluster, _entity(for_user, for_client_id, for_ip))
    if json:
        for entity, values in found:
            show_json({"entity": entity, "quotas": values})
    elif found:
        rows = [(shown_entity(one), key, f"{value:.15g}") for one, values in found for key, value in values.items()]
        show_table(("entity", "quota", "value"), rows)
    else:
        say("no quota")


@declare(app, "set", "pqbroker quota set --for-user ann --produce 1048576")
def set_quotas(
    for_user: QuotaUser = None,
    for_client_id: QuotaClientId = None,
    for_ip: QuotaAddress = None,
    produce: Annotated[
        float | None, option("--produce", metavar="BYTES", help="Bytes a second to write (producer_byte_rate).")
    ] = None,
    consume: Annotated[
        float | None, option("--consume", metavar="BYTES", help="Bytes a second to read (consumer_byte_rate).")
    ] = None,
    requests: Annotated[
        float | None,
        option("--requests", metavar="PERCENT", help="Processor time; 100 is the event loop (request_percentage)."),
    ] = None,
    mutations: Annotated[
        float | None,
        option("--mutations", metavar="COUNT", help="Partitions a second to create or delete."),
    ] = None,
    connections: Annotated[
        float | None, option("--connections", metavar="COUNT", help="Connections a second of an address.")
    ] = None,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    given = {
        "producer_byte_rate": produce, "consumer_byte_rate": consume, "request_percentage": requests,
        "controller_mutation_rate": mutations, "connection_creation_rate": connections,
    }  # fmt: skip
    values = {key: value for key, value in given.items() if value is not None}
    if not values:
        raise WrongInput("give a quota: --produce, --consume, --requests, --mutations or --connections")
    _change(broker, _named(for_user, for_client_id, for_ip), values, json=json)


@declare(app, "remove", "pqbroker quota remove --for-user ann")
def remove_quotas(
    for_user: QuotaUser = None, for_client_id: QuotaClientId = None, for_ip: QuotaAddress = None,
    broker: Broker = DEFAULT_KAFKA, json: Json = False,
) -> None:  # fmt: skip
    """Remove all quotas of a user, a client id, both together, or an address."""
    entity = _named(for_user, for_client_id, for_ip)
    with Cluster(broker) as cluster:
        found = [values for known, values in describe_quotas(cluster, entity) if known == entity]
    if not found:
        say(f"{shown_entity(entity)} has no quota of its own")
        return
    _change(broker, entity, dict.fromkeys(found[0]), json=json)


def _change(broker: str, entity: Mapping[str, str], values: Mapping[str, float | None], *, json: bool) -> None:
    with Cluster(broker) as cluster:
        alter_quotas(cluster, entity, values)
    if json:
        show_json({"entity": entity, "quotas": values})
        return
    for key, value in values.items():
        say(f"{shown_entity(entity)}: {key} " + ("removed" if value is None else f"is {value:.15g}"))


def _named(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str]:
    entity = _entity(user, client_id, ip)
    if not entity or ("ip" in entity and len(entity) > 1):
        raise WrongInput("say whose quota: --for-user, --for-client-id, both, or --for-ip")
    return entity


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str]:
    parts = {"user": user, "client-id": client_id, "ip": ip}
    return {kind: name for kind, name in parts.items() if name is not None}
