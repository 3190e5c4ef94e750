"""Logins at the start of a node: what must hold before it listens, and the first user."""

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from pqbroker.broker.ground.listeners import Listener
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.broker.services.logins.listener_logins import check_logins, is_http_login_required
from pqbroker.broker.services.logins.users import credentials_of, find_user
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.listener_settings import listener_value
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import STORED_USERS
from pqbroker.storage.tablets.scheme_users import UserChanges, UserRecord

log = logging.getLogger(__name__)

_LOOPBACK_NAMES = ("localhost",)


def check_listeners(settings: BrokerSettings, listeners: Iterable[Listener]) -> None:
    """ConfigError for a listener whose clients could not log in."""
    for listener in listeners:
        if listener.has_login and (unserved := check_logins(settings, listener.name)):
            log.warning(
                "listener %s: the mechanisms %s of sasl.enabled.mechanisms are not served", listener.name,
                ", ".join(unserved),
            )  # fmt: skip


def check_open_listeners(
    settings: BrokerSettings, listeners: Sequence[Listener], http: Listener | None, scheme: Scheme
) -> None:
    """ConfigError where everybody on the network could do what users of the directory are asked to log in for."""
    if settings.serves_without_login or not scheme.rows(STORED_USERS):
        return
    asked = [listener for listener in listeners if not _demands_user(settings, listener)]
    if http is not None and not _demands_user(settings, http) and not is_http_login_required(settings, listeners):
        asked.append(http)
    found = [listener for listener in asked if not _is_local(listener)]
    if found:
        raise ConfigError(
            f"the directory has users, and {', '.join(map(str, found))} would serve everybody without a login: give "
            "the listener SASL_SSL or SASL_PLAINTEXT (listener.security.protocol.map), HTTP a login "
            "(pqbroker.http.login.required), let it listen on 127.0.0.1, or set pqbroker.listeners.without.login=true"
        )


async def add_first_user(scheme: Scheme, first: FirstUser, now_ms: int) -> None:
    """Make a super user; one that exists is left as it is. Raises as `Scheme.change`."""
    user = find_user(scheme, first.name)
    if user is not None:
        if not user.is_super:
            log.warning("the user %s exists and is no super user; --user changes nothing of it", first.name)
        return
    salt = os.urandom(16)
    credentials = await asyncio.to_thread(credentials_of, first.password, salt)

    def add(known: object) -> list[UserRecord]:
        return [UserRecord(first.name, credentials, is_super=True, created_ms=now_ms)]

    await UserChanges(scheme).change([first.name], add)
    log.info("the super user %s was made", first.name)


def _demands_user(settings: BrokerSettings, listener: Listener) -> bool:
    if listener.has_login:
        return True
    is_encrypted = listener.protocol.is_encrypted
    return is_encrypted and listener_value(settings, listener.name, "ssl.client.auth") == "required"


def _is_local(listener: Listener) -> bool:
    host = listener.address.host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK_NAMES
