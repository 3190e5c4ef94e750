"""Quotas shown and changed. The callers see to who may do so."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pqbroker.broker.services.quotas.callers import QuotasNode
from pqbroker.broker.services.quotas.quota_rules import QuotaEntity, QuotaFilter, check_value
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.row_sets import Key, Row
from pqbroker.storage.tablets.scheme_quotas import QuotaChanges, entity_key


class QuotaAlteration(NamedTuple):
    """Changes of one entity: a value for each key, None where it is removed."""

    entity: QuotaEntity
    values: Mapping[str, float | None]

    def __str__(self) -> str:
        told = (f"{key} removed" if value is None else f"{key}={value:.15g}" for key, value in self.values.items())
        return f"quotas of {self.entity}: {', '.join(told)}"


async def find_quotas(node: QuotasNode, wanted: QuotaFilter) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """Return the entities that a filter matches, with their values."""
    found: list[tuple[QuotaEntity, Mapping[str, float]]] = []
    for item in list(node.quotas.entries.items()):
        await node.turns.breathe()
        if wanted.matches(item[0]):
            found.append(item)
    return found


def check_alteration(node: QuotasNode, alteration: QuotaAlteration) -> None:
    """KafkaError INVALID_REQUEST, POLICY_VIOLATION for one entity too many."""
    entity = alteration.entity
    size, most = sum(len((name or "").encode()) for name in entity), node.settings.quota_name_bytes_max
    if size > most:
        text = f"the names have {size} bytes; the most allowed is {most} (pqbroker.quota.name.bytes.max)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    for key, value in alteration.values.items():
        check_value(entity, key, value)
    is_new = entity not in node.quotas.entries and any(value is not None for value in alteration.values.values())
    if is_new and len(node.quotas.entries) >= node.settings.quotas_max:
        text = f"{node.settings.quotas_max} entities have quotas, the most allowed (pqbroker.quotas.max); remove some"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)


async def alter_quotas(node: QuotasNode, alterations: Sequence[QuotaAlteration]) -> None:
    """Make checked changes, in one commit; they count from then on."""

    def plan(stored: Mapping[Key, Row]) -> Mapping[Key, Mapping[str, float]]:
        wanted: dict[Key, dict[str, float]] = {}
        for entity, values in alterations:
            key = entity_key(entity)
            row: Any = stored.get(key)
            after = wanted.setdefault(key, dict(row["values"]) if row is not None else {})
            for name, value in values.items():
                after.pop(name, None)
                if value is not None:
                    after[name] = value
        return wanted

    if alterations:
        await QuotaChanges(node.cell.current.scheme).change(plan)
