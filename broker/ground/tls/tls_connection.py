"""One connection under TLS: the protocol of a plain transport, and the transport of the protocol above it.

States:
    shaking   the handshake is under way; steps run in a thread, and nothing is read meanwhile
    open      what comes is decrypted into the buffer of the protocol above, what goes is encrypted
    closing   what is due leaves, then the alert that says that nothing follows
    closed
uvloop's own TLS holds 256 KiB for each connection, and does not count what waits unencrypted or in the socket's queue.
Here a piece of what comes is decrypted before the next one is taken, and what goes is encrypted as the socket takes it:
`get_write_buffer_size` is all that is in memory. No part of a file is taken: it would leave unencrypted.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum, auto
from typing import Any, Final, cast

from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.ground.tls.encryption_turns import EncryptionTurns
from pqbroker.broker.ground.tls.handshakes import Handshakes
from pqbroker.broker.ground.tls.listener_tls import ListenerTls, NoUser
from pqbroker.conf.addresses import Address
from pqbroker.conf.shares import holder_of

seldom = SeldomLog(logging.getLogger(__name__))

CIPHERTEXT_BYTES: Final = 64 << 10
"""Received at once; so much of it may wait while the protocol above reads nothing."""
_PIECE_BYTES: Final = 32 << 10
"""Ciphertext that OpenSSL is given at once: its buffer keeps its largest size as long as the connection lives."""
_LUMP_BYTES: Final = 256 << 10
"""Encrypted before the socket is given it."""
_PART_BYTES: Final = 2 << 20
"""Encrypted for one connection in one turn of the loop, about a millisecond."""
_HANDSHAKE_BYTES_MAX: Final = 256 << 10
"""Received in a handshake; OpenSSL takes certificates up to 100 KiB."""
_HIGH_BYTES: Final = 64 << 10
_LOW_BYTES: Final = 16 << 10
_HANDSHAKE_RECORD: Final = 0x16
"""First byte of what a TLS client sends."""


class TlsStage(IntEnum):
    """States of a connection under TLS, in the order in which it goes through them."""

    SHAKING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class TlsEvent(IntEnum):
    SHAKEN = auto()
    CLOSE = auto()
    LOSE = auto()


TLS_STAGES: Final[Mapping[tuple[TlsStage, TlsEvent], TlsStage]] = {
    (TlsStage.SHAKING, TlsEvent.SHAKEN): TlsStage.OPEN,
    (TlsStage.SHAKING, TlsEvent.CLOSE): TlsStage.CLOSED,
    (TlsStage.OPEN, TlsEvent.CLOSE): TlsStage.CLOSING,
    (TlsStage.CLOSING, TlsEvent.CLOSE): TlsStage.CLOSING,
    (TlsStage.CLOSED, TlsEvent.CLOSE): TlsStage.CLOSED,
    **{(stage, TlsEvent.LOSE): TlsStage.CLOSED for stage in TlsStage},
}

_BUFFER: Final = memoryview(bytearray(CIPHERTEXT_BYTES))
"""Buffer of all connections of a process: it holds nothing between `get_buffer` and the `buffer_updated` after it."""


class TlsConnection(asyncio.Transport, asyncio.BufferedProtocol):
    """`connect` makes the protocol above once the handshake is done. `plain`: what a client gets that speaks plainly,
    by its first bytes; None: nothing."""

    def __init__(
        self,
        tls: ListenerTls,
        handshakes: Handshakes,
        turns: EncryptionTurns,
        connect: Callable[[], asyncio.BaseProtocol],
        plain: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._tls = tls
        self.listener = tls.name
        self._handshakes = handshakes
        self._turns = turns
        self._connect = connect
        self._plain = plain
        self._stage = TlsStage.SHAKING
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = None
        self._shaken_bytes = 0
        self._protocol: asyncio.BaseProtocol | None = None
        self._is_buffered = False
        self._is_paused = False
        self._held = b""
        """Ciphertext that came while the protocol above read nothing."""
        self._backlog: deque[Any] = deque()
        self._backlog_bytes = 0
        self._is_full = False
        """True while the socket takes nothing more."""
        self._is_planned = False
        self._is_told_full = False
        self._high_bytes, self._low_bytes = _HIGH_BYTES, _LOW_BYTES
        self.user: str | None = None
        """Name of the user that the client's certificate stands for."""

    # Called by the plain transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._limit_plain()
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self.holder = holder_of(peer[0], peer[1]) if peer else ""
        self.peer_text = str(Address(peer[0], peer[1])) if peer else "a client that has gone"
        self._handshakes.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        was, self._stage = self._stage, TLS_STAGES[self._stage, TlsEvent.LOSE]
        if self._handshakes.end(self) and was is TlsStage.SHAKING and self._shaken_bytes:
            self._handshakes.fail(self, "the client closed the connection")
        self._forget()
        protocol, self._protocol = self._protocol, None  # freed at once, not by the collector
        if protocol is not None:
            protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        data = _BUFFER[:nbytes]
        if self._stage is TlsStage.OPEN:
            if self._is_paused or self._held:
                self._held += data
            else:
                self._decrypt(data)
        elif self._stage is TlsStage.SHAKING:
            self._shake(data)

    def eof_received(self) -> bool | None:
        """Nothing more comes. What is due still leaves."""
        if self._stage is not TlsStage.OPEN:
            return None
        self.close()
        return bool(self._backlog)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._encrypt()

    # The handshake.

    def cut(self) -> None:
        """Close at once; for `Handshakes`, which has counted it."""
        self._stage = TLS_STAGES[self._stage, TlsEvent.LOSE]
        self._transport.abort()

    def _shake(self, data: memoryview) -> None:
        if not self._shaken_bytes and data[0] != _HANDSHAKE_RECORD:
            self._refuse_plain(bytes(data))
            return
        self._shaken_bytes += len(data)
        if self._shaken_bytes > _HANDSHAKE_BYTES_MAX:
            self._fail(f"more than {_HANDSHAKE_BYTES_MAX} bytes came before it was done")
            return
        self._incoming.write(data)
        if self._ssl is None:
            context = self._tls.state.context
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport.pause_reading()
        self._handshakes.perform(self.holder, self._ssl.do_handshake, self._stepped)

    def _stepped(self, done: "asyncio.Future[None]") -> None:
        """A step of the handshake was performed."""
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or self._stage is not TlsStage.SHAKING:
            return
        if sent := self._outgoing.read():
            self._transport.write(sent)
        if error is None:
            self._begin()
        elif isinstance(error, ssl.SSLWantReadError):
            self._transport.resume_reading()
        else:
            self._fail(_reason(error))

    def _begin(self) -> None:
        """The handshake is done: make the protocol above, and give it what has come already."""
        assert self._ssl is not None
        self._handshakes.end(self)
        try:
            self.user = self._tls.user(self._ssl.getpeercert(binary_form=True))
        except (NoUser, ValueError) as error:
            self._fail(str(error))
            return
        self._handshakes.made += 1
        self._stage = TLS_STAGES[self._stage, TlsEvent.SHAKEN]
        protocol = self._connect()
        self.set_protocol(protocol)
        protocol.connection_made(self)
        if self._stage is TlsStage.OPEN and not self._is_paused:
            self._transport.resume_reading()
            self._decrypt(memoryview(b""))

    def _refuse_plain(self, data: bytes) -> None:
        """Kafka closes such a connection; so do we, unless something can be said in the client's own words."""
        if self._plain is not None and (answer := self._plain(data)):
            self._transport.write(answer)
        kind = "HTTP" if data[:1].isalpha() else "plain Kafka"
        self._fail(f"the client speaks {kind}, not TLS" + ("" if self._plain else "; set its security.protocol"))

    def _fail(self, reason: str) -> None:
        self._handshakes.end(self)
        self._handshakes.fail(self, reason)
        self._stage = TLS_STAGES[self._stage, TlsEvent.CLOSE]
        self._forget()
        self._transport.close()

    # What comes.

    def _decrypt(self, data: memoryview) -> None:
        """Give the protocol above what has come, in as few calls as its buffer allows."""
        at, size = 0, len(data)
        while True:
            if self._stage is not TlsStage.OPEN:
                return
            if self._is_paused:
                self._held = bytes(data[at:]) + self._held
                return
            buffer = self._upper_buffer()
            filled, is_whole = 0, False
            while filled < len(buffer):
                if at < size and self._incoming.pending < _PIECE_BYTES:
                    self._incoming.write(data[at : at + _PIECE_BYTES])
                    at += _PIECE_BYTES
                received = self._received(buffer, filled)
                if received is None:
                    return
                if not received and at >= size:
                    is_whole = True
                    break
                filled += received
            if filled:
                self._pass_on(buffer, filled)
            if is_whole or (at >= size and not self._incoming.pending and not self._pending()):
                return

    def _upper_buffer(self) -> Any:
        """Return the memory that what comes is decrypted into."""
        if self._is_buffered:
            return self._protocol.get_buffer(-1)  # type: ignore[union-attr]
        return bytearray(CIPHERTEXT_BYTES)

    def _received(self, buffer: Any, filled: int) -> int | None:
        """Return how many bytes were decrypted; 0: more must come before; None: the connection ends."""
        assert self._ssl is not None
        if not self._incoming.pending and not self._ssl.pending():
            return 0
        try:
            count = self._ssl.read(len(buffer) - filled, memoryview(buffer)[filled:])
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            seldom.info("connection from %s closed: %s", self.peer_text, _reason(error))
            self.abort()
            return None
        if not count:
            if filled:
                self._pass_on(buffer, filled)
            self.close()
            return None
        self._send_alerts()
        return cast(int, count)

    def _pending(self) -> int:
        assert self._ssl is not None
        return self._ssl.pending()

    def _pass_on(self, buffer: Any, filled: int) -> None:
        if self._is_buffered:
            self._protocol.buffer_updated(filled)  # type: ignore[union-attr]
        else:
            self._protocol.data_received(bytes(memoryview(buffer)[:filled]))  # type: ignore[union-attr]

    def _send_alerts(self) -> None:
        """Send what reading made OpenSSL say, such as an answer to new keys."""
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    # What goes: the transport of the protocol above.

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._stage is not TlsStage.OPEN:
            return
        for part in list_of_data:
            if size := len(part):
                self._backlog.append(part)
                self._backlog_bytes += size
        if not self._is_full and not self._is_planned:
            self._encrypt()
        self._tell_fullness()

    def _encrypt(self) -> None:
        """Encrypt what the socket takes, at most a part of what a turn has left."""
        part = left = min(_PART_BYTES, self._turns.left)
        while self._backlog and not self._is_full and left > 0 and self._stage is not TlsStage.CLOSED:
            lump = self._lump()
            left -= len(lump)
            self._transport.write(self._encrypted(lump))
        if left < part:
            self._turns.spend(part - left)
        if self._backlog and not self._is_full and not self._is_planned:
            self._is_planned = True
            self._turns.wait(self._encrypt_again)
        if self._stage is TlsStage.CLOSING and not self._backlog:
            self._say_goodbye()
        self._tell_fullness()

    def _encrypt_again(self) -> None:
        self._is_planned = False
        self._encrypt()

    def _lump(self) -> memoryview:
        """Take the first parts of the backlog: small ones as one, since each call makes a record of its own."""
        backlog = self._backlog
        first = backlog.popleft()
        if len(first) >= _LUMP_BYTES or not backlog:
            lump = memoryview(first)
            if len(lump) > _LUMP_BYTES:
                backlog.appendleft(lump[_LUMP_BYTES:])
                lump = lump[:_LUMP_BYTES]
        else:
            parts, size = [first], len(first)
            while backlog and size + len(backlog[0]) <= _LUMP_BYTES:
                part = backlog.popleft()
                parts.append(part)
                size += len(part)
            lump = memoryview(b"".join(parts))
        self._backlog_bytes -= len(lump)
        return lump

    def _encrypted(self, lump: memoryview) -> bytes:
        assert self._ssl is not None
        write = self._ssl.write
        sent = write(lump)
        while sent < len(lump):
            sent += write(lump[sent:])
        return self._outgoing.read()

    def _say_goodbye(self) -> None:
        assert self._ssl is not None
        self._stage = TLS_STAGES[self._stage, TlsEvent.LOSE]
        with suppress(ssl.SSLError):  # the client's own alert has not come; nobody waits for it
            self._ssl.unwrap()
        if alert := self._outgoing.read():
            self._transport.write(alert)
        self._forget()
        self._transport.close()

    def _tell_fullness(self) -> None:
        """Have the protocol above pause and resume."""
        if self._protocol is None or self._stage is TlsStage.CLOSED:
            return
        size = self.get_write_buffer_size()
        if not self._is_told_full and size > self._high_bytes:
            self._is_told_full = True
            self._protocol.pause_writing()
        elif self._is_told_full and size <= self._low_bytes:
            self._is_told_full = False
            self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes + self._transport.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = _HIGH_BYTES if high is None else high
        self._low_bytes = min(_LOW_BYTES, self._high_bytes) if low is None else low
        self._limit_plain()
        self._tell_fullness()

    def _limit_plain(self) -> None:
        """Have the plain transport tell when it falls below our low mark; below its own high one it says nothing."""
        self._transport.set_write_buffer_limits(high=self._low_bytes)

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        if not self._is_paused and self._stage is TlsStage.OPEN:
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and self._stage is TlsStage.OPEN:
            self._is_paused = False
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        """Decrypt what came before the pause, then read again."""
        if self._is_paused or self._stage is not TlsStage.OPEN:
            return
        held, self._held = self._held, b""
        self._decrypt(memoryview(held))
        if not self._is_paused and self._stage is TlsStage.OPEN:
            self._transport.resume_reading()

    def is_reading(self) -> bool:
        return not self._is_paused and self._stage is TlsStage.OPEN

    def is_closing(self) -> bool:
        return self._stage >= TlsStage.CLOSING or self._transport.is_closing()

    def close(self) -> None:
        if self._stage is not TlsStage.OPEN:
            return
        self._stage = TLS_STAGES[self._stage, TlsEvent.CLOSE]
        self._transport.pause_reading()
        if not self._backlog:
            self._say_goodbye()

    def abort(self) -> None:
        self._stage = TLS_STAGES[self._stage, TlsEvent.LOSE]
        self._forget()
        self._transport.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Facts of the connection. There is no socket: what is written to it would leave unencrypted."""
        if name == "socket":
            return default
        if name == "certificate_user":
            return self.user
        if name == "ssl_object":
            return self._ssl
        if name == "sslcontext":
            return None if self._ssl is None else self._ssl.context
        return self._transport.get_extra_info(name, default)

    def _forget(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0
        self._held = b""


def _reason(error: BaseException) -> str:
    """Say in words why TLS failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    reason = getattr(error, "reason", None)
    if not reason:
        return str(error) or type(error).__name__
    words = str(reason).lower().replace("_", " ")
    return _REASONS.get(words, words)


_REASONS = {
    "peer did not return a certificate": "the client has no certificate, and ssl.client.auth is required",
    "certificate unknown": "the client refuses the broker's certificate (certificate unknown)",
    "tlsv1 alert unknown ca": "the client does not trust the broker's certificate (unknown authority)",
    "sslv3 alert certificate unknown": "the client refuses the broker's certificate (certificate unknown)",
    "sslv3 alert bad certificate": "the client refuses the broker's certificate (bad certificate)",
    "tlsv1 alert protocol version": "the client speaks no version of TLS in ssl.enabled.protocols",
    "unsupported protocol": "the client speaks no version of TLS in ssl.enabled.protocols",
    "no shared cipher": "the client has no cipher suite in common with the listener",
}
