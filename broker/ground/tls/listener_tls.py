"""TLS of one listener: the context in force for new connections, made of its settings and of the files they name.

A context is replaced as a whole. Connections keep the one that they began with, so a change drops none.
"""

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.listener_settings import listener_value, tls_texts
from pqbroker.security.contexts import ClientAuth, server_context
from pqbroker.security.distinguished_names import CertificateFacts, certificate_facts
from pqbroker.security.key_material import load_keys
from pqbroker.security.principal_rules import parse_principal_rules, user_of
from pqbroker.security.tls_options import TlsOptions, tls_options

log = logging.getLogger(__name__)

Stamps = Mapping[str, tuple[int, int, int]]
"""Files by path: their inode, size and time of the last change in nanoseconds."""


class NoUser(Exception):
    """No rule makes a user's name of a certificate's distinguished name."""


@dataclass(frozen=True, slots=True)
class TlsState:
    """All that is in force at one time."""

    context: ssl.SSLContext
    certificate: CertificateFacts
    texts: Mapping[str, str]
    stamps: Stamps
    auth: ClientAuth


class ListenerTls:
    """TLS of the listener `name`. `load` before the first connection, and `reload` when something may have changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._state: TlsState | None = None

    @property
    def state(self) -> TlsState:
        assert self._state is not None, "loaded before the first connection"
        return self._state

    def load(self, settings: BrokerSettings) -> None:
        """Read settings and files. ConfigError names the listener, cause and cure; what was in force stays then."""
        self._state = make_state(settings, self.name)

    def reload(self, settings: BrokerSettings) -> bool:
        """Take what has changed since; False if nothing has. ConfigError as from `load`. For a thread: it reads files.
        """
        state = self.state
        if tls_texts(settings, self.name) == state.texts and _stamps(state.stamps) == state.stamps:
            return False
        self.load(settings)
        return True

    def check(self, settings: BrokerSettings) -> None:
        """Check settings that are not in force yet; ConfigError. For a thread: it reads files.

        As in Kafka a new certificate stands for the same name, and for all hosts of the one in force.
        """
        state = self.state
        if tls_texts(settings, self.name) == state.texts:
            return
        old, new = state.certificate, make_state(settings, self.name).certificate
        if new.subject != old.subject and not listener_value(settings, self.name, "ssl.allow.dn.changes"):
            raise ConfigError(
                f"listener {self.name}: the new certificate is for {new.subject}, the one in force for {old.subject}; "
                "set ssl.allow.dn.changes=true to change it"
            )
        if not new.hosts >= old.hosts and not listener_value(settings, self.name, "ssl.allow.san.changes"):
            raise ConfigError(
                f"listener {self.name}: the new certificate lacks hosts of the one in force (subject alternative "
                "names); set ssl.allow.san.changes=true to leave them out"
            )

    def user(self, der: bytes | None) -> str | None:
        """Return the user's name for a client's certificate, None if it has none; NoUser."""
        if der is None:
            return None
        subject = certificate_facts(der).subject
        user = user_of(parse_principal_rules(self.state.texts.get("ssl.principal.mapping.rules", "DEFAULT")), subject)
        if user is None:
            raise NoUser(f"no rule of ssl.principal.mapping.rules fits {subject!r}")
        return user


def make_state(settings: BrokerSettings, listener: str) -> TlsState:
    """Read what is set for a listener, and the files; ConfigError."""
    texts = tls_texts(settings, listener)
    auth = ClientAuth(listener_value(settings, listener, "ssl.client.auth"))
    try:
        options = tls_options(texts)
        stamps = _stamps(_paths(options))  # before the files are read: what changes meanwhile is read again
        parse_principal_rules(texts.get("ssl.principal.mapping.rules", "DEFAULT"))
        context = server_context(options, auth)
        assert options.keys is not None
        chain = load_keys(options.keys).chain
    except ValueError as error:
        raise ConfigError(f"listener {listener}: {error}") from None
    first = chain[: chain.index("-----END") + len("-----END CERTIFICATE-----")] + "\n"
    return TlsState(context, certificate_facts(ssl.PEM_cert_to_DER_cert(first)), texts, stamps, auth)


def _paths(options: TlsOptions) -> tuple[str, ...]:
    return tuple(each.location for each in (options.keys, options.trust) if each is not None and each.location)


def _stamps(paths: Mapping[str, object] | tuple[str, ...]) -> Stamps:
    """Stamps of files; one that does not exist has zeros."""
    found = {}
    for path in paths:
        try:
            stat = Path(path).stat()
            found[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        except OSError:
            found[path] = (0, 0, 0)
    return found


