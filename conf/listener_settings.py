"""Settings in force for one listener: its own before those of all listeners, the defaults last."""

from collections.abc import Mapping
from typing import Any

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import LISTENER_PREFIX, declarations, without_listener


def listener_value(settings: BrokerSettings, listener: str, name: str) -> Any:
    """Return the value of a setting, such as `ssl.client.auth`, for a listener by its name."""
    own = dict(settings.listener_settings)
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    found = declarations(BrokerSettings)[name]
    return own.get(f"{prefix}{name}", found.value_in(settings))


def tls_texts(settings: BrokerSettings, listener: str) -> Mapping[str, str]:
    """Return the `ssl.*` settings of a listener that are given, as texts by the name that all listeners have."""
    known = declarations(BrokerSettings)
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    values = dict(settings.tls)
    values |= {
        without_listener(name): value for name, value in settings.listener_settings if name.startswith(f"{prefix}ssl.")
    }
    return {name: known[name].format(value) for name, value in values.items()}
