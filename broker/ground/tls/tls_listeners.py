"""The listeners of a node that are encrypted: their contexts, and how changed settings and files come into force."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from pqbroker.broker.ground.audit import AuditLog
from pqbroker.broker.ground.listeners import Connect, Listener
from pqbroker.broker.ground.metrics import Sample
from pqbroker.broker.ground.tls.encryption_turns import EncryptionTurns
from pqbroker.broker.ground.tls.handshakes import Handshakes
from pqbroker.broker.ground.tls.listener_tls import ListenerTls
from pqbroker.broker.ground.tls.tls_connection import TlsConnection
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError

log = logging.getLogger(__name__)

CHANGE_LOOK_S = 2.0
"""Seconds between looks for changed files and settings."""


class TlsListeners:
    """`load` before the first connection; `watch` for as long as the node serves."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._listeners = {each.name: ListenerTls(each.name) for each in listeners if each.protocol.is_encrypted}
        self._handshakes: Handshakes | None = None
        self._told: dict[str, str] = {}
        """Refusals by listener: each is written to the log once."""

    def load(self, settings: BrokerSettings) -> None:
        """Read settings and files; ConfigError."""
        for each in self._listeners.values():
            each.load(settings)

    @property
    def handshakes(self) -> Handshakes:
        assert self._handshakes is not None, "begun"
        return self._handshakes

    def begin(
        self, loop: asyncio.AbstractEventLoop, settings: Callable[[], BrokerSettings], audit: AuditLog | None = None
    ) -> None:
        """`settings`: those in force now."""
        self._settings = settings
        self._handshakes = Handshakes(loop, settings, audit)
        self._turns = EncryptionTurns(loop)

    def under(self, listener: Listener, connect: Connect, plain: Callable[[bytes], bytes] | None = None) -> Connect:
        """Return what makes the protocol of a connection: `connect` itself, or TLS that calls it."""
        tls = self._listeners.get(listener.name)
        if tls is None:
            return connect
        return lambda: TlsConnection(tls, self.handshakes, self._turns, connect, plain)

    async def watch(self) -> None:
        """Take what changes: settings, and the content of files."""
        while True:
            await self.take()
            await asyncio.sleep(CHANGE_LOOK_S)

    async def check(self, settings: BrokerSettings) -> None:
        """Check settings that are not in force yet; ConfigError."""
        for tls in self._listeners.values():
            await asyncio.to_thread(tls.check, settings)

    async def take(self) -> None:
        """Take the settings in force now, and changed files."""
        for tls in self._listeners.values():
            await self._look(tls)

    def samples(self, now_s: float) -> list[Sample]:
        """Return samples of handshakes and certificates. `now_s`: seconds since 1970."""
        handshakes = self.handshakes
        return [
            Sample("tls_handshakes", handshakes.made, ("made",)),
            Sample("tls_handshakes", handshakes.failed, ("failed",)),
            Sample("tls_handshakes_under_way", handshakes.under_way),
            *(
                Sample("tls_certificate_days_left", each.state.certificate.days_left(now_s), (each.name,))
                for each in self._listeners.values()
            ),
        ]

    def close(self) -> None:
        self.handshakes.close()

    async def _look(self, tls: ListenerTls) -> None:
        try:
            is_changed = await asyncio.to_thread(tls.reload, self._settings())
        except ConfigError as error:
            if self._told.get(tls.name) != str(error):
                self._told[tls.name] = str(error)
                log.error("%s; the certificate that was in force stays", error)
            return
        self._told.pop(tls.name, None)
        if is_changed:
            facts = tls.state.certificate
            log.info(
                "listener %s: a changed certificate or setting of TLS is in force for new connections: %s, valid until "
                "%s UTC", tls.name, facts.subject, facts.not_after,
            )  # fmt: skip
