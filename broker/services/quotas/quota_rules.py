"""Quotas of users, client ids and addresses as Kafka has them (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612). Pure.

An entity is a user, a client id, both, or an address; each by name, or the default for those without a quota of their
own. Of all entities that a client belongs to the most specific one counts, for each key by itself.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from pqbroker.protocol.errors import ErrorCode, KafkaError

DEFAULT_ENTITY: Final = ""
"""Stands for a name in an entity: all that have no quota by name."""
QUOTA_USER, QUOTA_CLIENT_ID, QUOTA_IP = "user", "client-id", "ip"
"""Types of entities, in Kafka's words."""
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_OF_CLIENTS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_WHOLE: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})
"""Keys whose values are whole numbers."""
_EPSILON: Final = 1e-6


class QuotaEntity(NamedTuple):
    """Whom a quota is for. None: of any, and no part of the entity; DEFAULT_ENTITY: the default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> list[tuple[str, str | None]]:
        """Return type and name of each part, None for the default, as Kafka's messages have them."""
        named = zip((QUOTA_CLIENT_ID, QUOTA_IP, QUOTA_USER), (self.client_id, self.ip, self.user), strict=True)
        return [(kind, name or None) for kind, name in named if name is not None]

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in reversed(self.parts()))


class FoundQuota(NamedTuple):
    """A quota that a client is under. Usage is counted for all clients of the same `tags`."""

    bound: float
    tags: tuple[str, str]
    """User and client id that share it; empty: all."""


Quotas = Mapping[QuotaEntity, Mapping[str, float]]
"""Values by key of each entity."""


def find_quota(quotas: Quotas, key: str, user: str, client_id: str) -> FoundQuota | None:
    """Return the quota of a client; None where it is under none."""
    for entity, tags in _levels(user, client_id):
        values = quotas.get(entity)
        if values is not None and key in values:
            return FoundQuota(values[key], tags)
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, tuple[str, str]]]:
    """Yield the entities that a client belongs to, the most specific one first, and whom each is shared by."""
    both = (user, client_id)
    yield QuotaEntity(user, client_id), both
    yield QuotaEntity(user, DEFAULT_ENTITY), both
    yield QuotaEntity(user), (user, "")
    yield QuotaEntity(DEFAULT_ENTITY, client_id), both
    yield QuotaEntity(DEFAULT_ENTITY, DEFAULT_ENTITY), both
    yield QuotaEntity(DEFAULT_ENTITY), (user, "")
    yield QuotaEntity(None, client_id), ("", client_id)
    yield QuotaEntity(None, DEFAULT_ENTITY), ("", client_id)


def ip_quota(quotas: Quotas, ip: str) -> float | None:
    """Return the connections a second that an address may make; None: as many as it likes."""
    for entity in (QuotaEntity(ip=ip), QuotaEntity(ip=DEFAULT_ENTITY)):
        values = quotas.get(entity)
        if values is not None and CONNECTION_CREATION_RATE in values:
            return values[CONNECTION_CREATION_RATE]
    return None


def quota_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity that parts name, each a type and a name, None for the default. Of a type that is named twice
    the last name counts. KafkaError INVALID_REQUEST."""
    named: dict[str, str] = {}
    for kind, name in parts:
        if kind not in (QUOTA_USER, QUOTA_CLIENT_ID, QUOTA_IP):
            raise _refusal(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refusal(f"Empty {kind} not supported")
        named[kind] = DEFAULT_ENTITY if name is None else name
    if not named or (QUOTA_IP in named and len(named) > 1):
        raise _refusal("Invalid empty client quota entity")
    ip = named.get(QUOTA_IP)
    if ip:
        try:
            named[QUOTA_IP] = str(ip_address(ip))
        except ValueError:
            raise _refusal(f"{ip} is not a valid IP or resolvable host.") from None
    return QuotaEntity(named.get(QUOTA_USER), named.get(QUOTA_CLIENT_ID), named.get(QUOTA_IP))


def check_value(entity: QuotaEntity, key: str, value: float | None) -> None:
    """KafkaError INVALID_REQUEST for a key that the entity cannot have, or a value that is no limit. None: removed."""
    keys = _OF_CLIENTS if entity.ip is None else (CONNECTION_CREATION_RATE,)
    if value is None:
        return
    if key not in keys:
        raise _refusal(f"Invalid configuration key {key}")
    if not math.isfinite(value) or value <= 0:
        raise _refusal(f"Quota {key} must be greater than 0")
    if key in _WHOLE and abs(int(value + _EPSILON) - value) > _EPSILON:
        raise _refusal(f"Configuration {key} must be a Long value")


def _refusal(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


QUOTA_EXACT, QUOTA_DEFAULT, QUOTA_ANY = 0, 1, 2
"""Ways in which a component of a filter matches."""


class QuotaFilter(NamedTuple):
    """Entities that a client asks about: by type, a way of matching and a name. `strict`: with no other part."""

    components: Mapping[str, tuple[int, str | None]]
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        """Return True if the filter names the entity."""
        parts = dict(entity.parts())
        if self.strict and parts.keys() != self.components.keys():
            return False
        for kind, (way, name) in self.components.items():
            if kind not in parts or (way == QUOTA_EXACT and parts[kind] != name):
                return False
            if way == QUOTA_DEFAULT and parts[kind] is not None:
                return False
        return True
