"""Tokens of authorization servers (OAUTHBEARER) at the start of a node: the keys and rules of its listeners. Loaded
where a listener takes tokens."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from pqbroker.broker.services.logins.bearer_rules import TokenRules
from pqbroker.broker.services.logins.listener_logins import key_trust, mechanism_value
from pqbroker.broker.services.logins.web_keys import KeyAddress, ListenerKeys, WebKeys, check_url
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.oauth import (
    CLOCK_SKEW_SECONDS,
    EXPECTED_AUDIENCE,
    EXPECTED_ISSUER,
    JWKS_REFRESH_MS,
    JWKS_RETRY_BACKOFF_MS,
    JWKS_RETRY_BACKOFF_MS_MAX,
    JWKS_URL,
    OAUTHBEARER,
    SUB_CLAIM_NAME,
)
from pqbroker.security.contexts import client_context
from pqbroker.security.errors import SecurityError

log = logging.getLogger(__name__)


async def load_keys(settings: BrokerSettings, names: Iterable[str]) -> Mapping[str, ListenerKeys]:
    """Read the keys of listeners, each address once, and return them by the listeners' names. ConfigError."""
    loop = asyncio.get_running_loop()
    read: dict[KeyAddress, WebKeys] = {}
    found: dict[str, ListenerKeys] = {}
    try:
        for name in names:
            address = _address(settings, name)
            if address not in read:
                read[address] = WebKeys(loop, address)
                await read[address].load()
            found[name] = ListenerKeys(read[address], _rules(settings, name))
    except BaseException:
        for keys in read.values():
            keys.close()
        raise
    return found


def _address(settings: BrokerSettings, name: str) -> KeyAddress:
    url, refresh_ms, backoff_ms, backoff_ms_max = (
        mechanism_value(settings, name, OAUTHBEARER, one)
        for one in (JWKS_URL, JWKS_REFRESH_MS, JWKS_RETRY_BACKOFF_MS, JWKS_RETRY_BACKOFF_MS_MAX)
    )
    check_url(url)
    options = key_trust(settings, name)
    try:
        context = None if options is None else client_context(options)
    except SecurityError as error:
        raise ConfigError(f"listener {name}: the address of keys cannot be checked: {error}") from None
    return KeyAddress(url, refresh_ms, backoff_ms, backoff_ms_max, context)


def _rules(settings: BrokerSettings, name: str) -> TokenRules:
    issuer, audiences, skew_s, claim = (
        mechanism_value(settings, name, OAUTHBEARER, one)
        for one in (EXPECTED_ISSUER, EXPECTED_AUDIENCE, CLOCK_SKEW_SECONDS, SUB_CLAIM_NAME)
    )
    if not audiences:
        log.warning(
            "listener %s takes tokens that the authorization server made for any service; set %s", name,
            EXPECTED_AUDIENCE,
        )  # fmt: skip
    return TokenRules(issuer or None, audiences, skew_s, claim, settings.user_name_bytes_max)
