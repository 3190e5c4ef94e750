"""Quotas of clients of a Kafka cluster: shown and changed."""

from collections.abc import Mapping
from typing import Final

from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.refusals import check
from pqbroker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from pqbroker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EVERY_OTHER: Final = "<default>"
"""Stands for the default entity of a type, as in Kafka's tools."""
_EXACT, _DEFAULT = 0, 1
Entity = Mapping[str, str]
"""Names by type of entity: user, client-id, ip."""


def describe_quotas(cluster: Cluster, wanted: Entity) -> list[tuple[dict[str, str], dict[str, float]]]:
    """Return entities with their quotas: all that have the parts of `wanted`; CommandError."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT, match=None)
        if name == EVERY_OTHER
        else ComponentData(entity_type=kind, match_type=_EXACT, match=name)
        for kind, name in wanted.items()
    ]
    answer = cluster.ask(DescribeClientQuotasRequest(components=components), DescribeClientQuotasResponse)
    check(answer.error_code, "cannot list quotas", answer.error_message)
    found = [
        (
            {part.entity_type: EVERY_OTHER if part.entity_name is None else part.entity_name for part in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in answer.entries or ()
    ]
    return sorted(found, key=lambda item: sorted(item[0].items()))


def alter_quotas(cluster: Cluster, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Set quotas of an entity, and remove those whose value is None; CommandError."""
    parts = [
        EntityData(entity_type=kind, entity_name=None if name == EVERY_OTHER else name)
        for kind, name in entity.items()
    ]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=ops)])
    answer = cluster.ask_controller(request, AlterClientQuotasResponse)
    for entry in answer.entries:
        check(entry.error_code, f"cannot change the quotas of {shown_entity(entity)}", entry.error_message)


def shown_entity(entity: Entity) -> str:
    """Return an entity as one text."""
    return ", ".join(f"{kind} {name}" for kind, name in sorted(entity.items(), reverse=True))
