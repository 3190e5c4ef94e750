"""Logins of one listener, as its settings say: mechanisms, users of PLAIN that are listed, how long a session lasts."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pqbroker.broker.ground.listeners import HTTP_NAME, Listener
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import LISTENER_PREFIX, ConfigError
from pqbroker.conf.listener_settings import listener_value
from pqbroker.conf.logins import MECHANISMS, SASL_PLAIN
from pqbroker.conf.oauth import JWKS_URL, OAUTHBEARER
from pqbroker.security.errors import SecurityError
from pqbroker.security.jaas import OAUTH_MODULE, PLAIN_MODULE, JaasEntry, parse_jaas
from pqbroker.security.tls_options import TlsOptions, tls_options

JAAS = "sasl.jaas.config"
ENABLED = "sasl.enabled.mechanisms"
REAUTH = "connections.max.reauth.ms"


def mechanisms_of(settings: BrokerSettings, listener: str) -> tuple[str, ...]:
    """Return the mechanisms that clients of a listener may choose."""
    return tuple(each for each in listener_value(settings, listener, ENABLED) if each in MECHANISMS)


def session_ms_of(settings: BrokerSettings, listener: str, mechanism: str) -> int:
    """Return the milliseconds after which a client must log in again; 0: never."""
    found: int = mechanism_value(settings, listener, mechanism, REAUTH)
    return found


def mechanism_value(settings: BrokerSettings, listener: str, mechanism: str, name: str) -> Any:
    """Return the value of a setting for a mechanism of a listener: its own, or else that of the listener."""
    own = dict(settings.listener_settings).get(_of_mechanism(listener, mechanism, name))
    return listener_value(settings, listener, name) if own is None else own


def takes_bearer_tokens(settings: BrokerSettings, listener: str) -> bool:
    """Return True if clients of a listener may log in by tokens of an authorization server. ConfigError where there are
    no keys for them."""
    if OAUTHBEARER not in mechanisms_of(settings, listener):
        return False
    if not mechanism_value(settings, listener, OAUTHBEARER, JWKS_URL):
        raise ConfigError(
            f"listener {listener}: {OAUTHBEARER} is in {ENABLED}, and {JWKS_URL} is not set; tokens are checked by the "
            "keys at that address"
        )
    return True


def bearer_listeners(settings: BrokerSettings, listeners: Iterable[Listener], http: Listener | None) -> list[str]:
    """Return the names of the listeners that take tokens; HTTP is one where the settings name keys for it. ConfigError.
    """
    names = [one.name for one in listeners if one.has_login and takes_bearer_tokens(settings, one.name)]
    if http is not None and mechanism_value(settings, HTTP_NAME, OAUTHBEARER, JWKS_URL):
        names += [HTTP_NAME] if OAUTHBEARER in mechanisms_of(settings, HTTP_NAME) else []
    return names


def key_trust(settings: BrokerSettings, listener: str) -> TlsOptions | None:
    """Return the certificates that the address of keys is checked by: `ssl.` options of OAUTHBEARER's login module;
    None: those of the system. ConfigError."""
    name = _of_mechanism(listener, OAUTHBEARER, JAAS)
    text = dict(settings.listener_settings).get(name, "")
    if not text:
        return None
    entry = _entry(text, name, OAUTH_MODULE)
    found = {option: value for option, value in entry.options.items() if option.startswith("ssl.")}
    try:
        return tls_options(found) if found else None
    except SecurityError as error:
        raise ConfigError(f"{name}: {error}") from None


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
    takes_bearer_tokens(settings, listener)
    return [each for each in enabled if each not in MECHANISMS]


@lru_cache(maxsize=16)
def _listed(text: str, listener: str) -> Mapping[str, str]:
    return _entry(text, _of_mechanism(listener, SASL_PLAIN, JAAS), PLAIN_MODULE).listed_users


def _entry(text: str, name: str, module: str) -> JaasEntry:
    """Read the JAAS of a setting; ConfigError unless it has the module."""
    try:
        entry = parse_jaas(text)
    except SecurityError as error:
        raise ConfigError(f"{name}: {error}") from None
    if entry.module != module:
        raise ConfigError(f"{name} has the login module {entry.module}; give {module}")
    return entry


def _of_mechanism(listener: str, mechanism: str, name: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{name}"
