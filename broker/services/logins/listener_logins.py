"""Logins of one listener, as its settings say: mechanisms, users of PLAIN that are listed, how long a session lasts."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from pqbroker.broker.ground.listeners import Listener
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import LISTENER_PREFIX, ConfigError
from pqbroker.conf.listener_settings import listener_value
from pqbroker.conf.logins import MECHANISMS, SASL_PLAIN
from pqbroker.security.errors import SecurityError
from pqbroker.security.jaas import PLAIN_MODULE, parse_jaas

JAAS = "sasl.jaas.config"
ENABLED = "sasl.enabled.mechanisms"
REAUTH = "connections.max.reauth.ms"


def mechanisms_of(settings: BrokerSettings, listener: str) -> tuple[str, ...]:
    """Return the mechanisms that clients of a listener may choose."""
    return tuple(each for each in listener_value(settings, listener, ENABLED) if each in MECHANISMS)


def session_ms_of(settings: BrokerSettings, listener: str, mechanism: str) -> int:
    """Return the milliseconds after which a client must log in again; 0: never."""
    own = dict(settings.listener_settings).get(_of_mechanism(listener, mechanism, REAUTH))
    found: int = listener_value(settings, listener, REAUTH) if own is None else own
    return found


def listed_users(settings: BrokerSettings, listener: str) -> Mapping[str, str]:
    """Return the passwords of PLAIN that a listener's settings list, by user. ConfigError."""
    text = dict(settings.listener_settings).get(_of_mechanism(listener, SASL_PLAIN, JAAS), "")
    return _listed(text, listener) if text else {}


def is_http_login_required(settings: BrokerSettings, listeners: Iterable[Listener]) -> bool:
    """Return True if HTTP serves nobody without a login, on a node with these listeners for Kafka clients."""
    told = settings.http_login_required
    return any(listener.has_login for listener in listeners) if told is None else told


def check_logins(settings: BrokerSettings, listener: str) -> list[str]:
    """Return the mechanisms that are enabled and not served. ConfigError where no client could log in."""
    enabled = listener_value(settings, listener, ENABLED)
    if settings.jaas_config is not None:
        name = _of_mechanism(listener, SASL_PLAIN, JAAS)
        raise ConfigError(f"{JAAS} is of no mechanism; for users of PLAIN set {name}, and leave it out for others")
    if not mechanisms_of(settings, listener):
        raise ConfigError(
            f"listener {listener}: {ENABLED} is {','.join(enabled)}, which this broker does not serve; choose from "
            f"{', '.join(MECHANISMS)}"
        )
    listed_users(settings, listener)
    return [each for each in enabled if each not in MECHANISMS]


@lru_cache(maxsize=16)
def _listed(text: str, listener: str) -> Mapping[str, str]:
    try:
        entry = parse_jaas(text)
    except SecurityError as error:
        raise ConfigError(f"{_of_mechanism(listener, SASL_PLAIN, JAAS)}: {error}") from None
    if entry.module != PLAIN_MODULE:
        raise ConfigError(
            f"{_of_mechanism(listener, SASL_PLAIN, JAAS)} has the login module {entry.module}; give {PLAIN_MODULE}"
        )
    return entry.listed_users


def _of_mechanism(listener: str, mechanism: str, name: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{name}"
