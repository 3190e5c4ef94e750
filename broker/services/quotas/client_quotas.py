"""Quotas of a node's clients as the scheme has them, and what was used of each. Not how they are changed.

Use is kept for a bounded number of clients; what was used longest ago is forgotten first.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.services.access.rule_index import normal_host
from pqbroker.broker.services.quotas.quota_rules import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    check_value,
    find_quota,
    ip_quota,
)
from pqbroker.broker.services.quotas.rates import UseBucket
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.tablets.row_sets import Key, Row
from pqbroker.storage.tablets.scheme_quotas import stored_entity

log = logging.getLogger(__name__)

SAVED_PART: Final = 0.25
"""Part of a window for which bytes and processor time that are not used are saved up: a rate is kept within ten seconds
to less than three percent."""
REQUEST_PAUSE_MS_MAX: Final = 1000
"""The longest pause at once for processor time that was used; as in Kafka one window."""


class ClientUse(NamedTuple):
    """Usage that counts for a client, by quota; None: it is under none of that key."""

    produced: UseBucket | None
    fetched: UseBucket | None
    busy: UseBucket | None
    """Percents of one thread: a hundred are a second of it."""
    mutations: UseBucket | None


class ClientQuotas:
    """Quotas by entity; `follow` keeps them as the scheme has them."""

    def __init__(self, settings: BrokerSettings, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        """`clock`: seconds; `changed`: called when a quota changes."""
        self._settings = settings
        self._clock = clock
        self._changed = changed
        self.entries: dict[QuotaEntity, Mapping[str, float]] = {}
        self._found: OrderedDict[tuple[str, str], ClientUse | None] = OrderedDict()
        """Usage of clients by user and client id, since the last change of a quota."""
        self._rates: OrderedDict[tuple[str, str, str], UseBucket] = OrderedDict()
        """Usage by key, user and client id that share it."""
        self.unreadable: dict[Key, str] = {}
        self.throttled_ms: dict[str, int] = {}
        """Milliseconds of pauses by key."""

    def now_ms(self) -> float:
        return self._clock() * 1000

    def of(self, principal: Principal, client_id: str | None) -> ClientUse | None:
        """Return the usage that counts for a client; None: it is under no quota."""
        client = (principal.name, client_id or "")
        try:
            return self._found[client]
        except KeyError:
            pass
        if len(self._found) >= self._settings.quota_clients_max:
            self._found.popitem(last=False)
        parts = (
            self._rate(PRODUCER_BYTE_RATE, *client), self._rate(CONSUMER_BYTE_RATE, *client),
            self._rate(REQUEST_PERCENTAGE, *client), self._rate(CONTROLLER_MUTATION_RATE, *client),
        )  # fmt: skip
        found = self._found[client] = None if parts == (None,) * 4 else ClientUse(*parts)
        return found

    def connection_pause_ms(self, ip: str) -> int:
        """Count a connection that an address makes; return for how long it is too early, 0: it may come in."""
        bound = ip_quota(self.entries, normal_host(ip)) if self.entries else None
        if bound is None:
            return 0
        rate = self._kept(("ip", ip, ""), bound, self._settings.quota_window_num)
        pause_ms = rate.owed_ms(self.now_ms())
        if not pause_ms:
            rate.count(1, self.now_ms())
        return pause_ms

    def throttled(self, key: str, pause_ms: int) -> int:
        """Count a pause, and return it."""
        if pause_ms:
            self.throttled_ms[key] = self.throttled_ms.get(key, 0) + pause_ms
        return pause_ms

    def follow(self, key: Key, row: Row | None) -> None:
        """Take the quotas of an entity that were stored, or removed (None)."""
        self._found.clear()
        self._take(key, row)
        self._changed()

    def load(self, rows: Mapping[Key, Row]) -> None:
        """Become what is stored."""
        self._found.clear()
        self.entries.clear()
        self.unreadable.clear()
        for key, row in rows.items():
            self._take(key, row)
        self._changed()

    def _take(self, key: Key, row: Row | None) -> None:
        self.unreadable.pop(key, None)
        try:
            entity = QuotaEntity(*stored_entity(key))
            self.entries.pop(entity, None)
            if row is not None:
                values: Any = row["values"]
                for name, value in values.items():
                    check_value(entity, name, value)
                self.entries[entity] = dict(values)
        except (KafkaError, ValueError, LookupError, TypeError, AttributeError) as bad:
            self.unreadable[key] = str(bad)
            log.error("the quotas of %r are unreadable and count for nobody: %s; set them again", key, bad)

    def _rate(self, key: str, user: str, client_id: str) -> UseBucket | None:
        found = find_quota(self.entries, key, user, client_id)
        if found is None:
            return None
        windows = self._settings.controller_quota_window_num if key == CONTROLLER_MUTATION_RATE else SAVED_PART
        return self._kept((key, *found.tags), found.bound, windows)

    def _kept(self, name: tuple[str, str, str], bound: float, windows: float) -> UseBucket:
        """Return the use that counts for these clients; a new one has saved up for that many windows."""
        rate = self._rates.get(name)
        if rate is None:
            if len(self._rates) >= self._settings.quota_clients_max:
                self._rates.popitem(last=False)
            saved_s = windows * self._settings.quota_window_size_seconds
            rate = self._rates[name] = UseBucket(bound, saved_s, self.now_ms())
        else:
            self._rates.move_to_end(name)
        rate.bound = bound
        return rate
