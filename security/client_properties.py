"""A `client.properties` of Kafka's clients: how a client of ours connects, and by which certificates.

Names that begin with `security.`, `ssl.` or `sasl.` are known here or refused: a protection that is asked for is never
left out in silence. Other names are of Java's clients, and are passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from pqbroker.security.client_login import USUAL_MECHANISM, ClientLogin, login_of
from pqbroker.security.errors import SecurityError
from pqbroker.security.properties import read_properties
from pqbroker.security.protocols import SecurityProtocol
from pqbroker.security.tls_options import ONLY_DEFAULTS, TlsOptions, tls_options

FILE_BYTES_MAX = 1 << 20
_PROTOCOL = "security.protocol"
_GUARDED = ("security.", "ssl.", "sasl.")
_OF_TLS = frozenset((
    *ONLY_DEFAULTS, "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
    "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol", "ssl.truststore.certificates",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """Security of a client's connections."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsOptions | None = None
    """None: connections are plain."""
    login: ClientLogin | None = None
    """None: nobody logs in."""
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Everything that was given, by name."""


PLAIN = ClientSecurity()


def load_client_security(path: Path) -> ClientSecurity:
    """Read a file; SecurityError names it."""
    try:
        data = path.read_bytes()[: FILE_BYTES_MAX + 1]
    except OSError as error:
        raise SecurityError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise SecurityError(f"{path} has more than {FILE_BYTES_MAX} bytes; give a client.properties")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SecurityError(f"{path} is not UTF-8 at byte {error.start}") from None
    try:
        return client_security({name: value for _, name, value in read_properties(text)})
    except SecurityError as error:
        raise SecurityError(f"{path}: {error}") from None


def as_user(found: ClientSecurity, user: str, password: str) -> ClientSecurity:
    """Return the security of connections that log in as a user, by the usual mechanism unless properties name one."""
    is_encrypted = found.protocol.is_encrypted
    protocol = SecurityProtocol.SASL_SSL if is_encrypted else SecurityProtocol.SASL_PLAINTEXT
    by_password = found.login is not None and found.login.token_file is None
    mechanism = found.login.mechanism if found.login and by_password else USUAL_MECHANISM
    return replace(found, protocol=protocol, login=ClientLogin(mechanism, user, password))


def client_security(texts: Mapping[str, str]) -> ClientSecurity:
    """Return what properties say, by name; SecurityError."""
    _check_names(texts)
    name = texts.get(_PROTOCOL, "").strip() or SecurityProtocol.PLAINTEXT.value
    try:
        protocol = SecurityProtocol(name.upper())
    except ValueError:
        known = ", ".join(each.value for each in SecurityProtocol)
        raise SecurityError(f"{_PROTOCOL} is {name!r}; choose from {known}") from None
    tls = tls_options(texts) if protocol.is_encrypted else None
    return ClientSecurity(protocol, tls, login_of(texts) if protocol.has_login else None, dict(texts))


def _check_names(texts: Mapping[str, str]) -> None:
    known = {_PROTOCOL, *_OF_TLS}
    for name in texts:
        if name.startswith(_GUARDED) and name not in known and not name.startswith("sasl."):
            near = get_close_matches(name, known, n=1)
            raise SecurityError(f"unknown name {name}" + (f"; did you mean {near[0]}?" if near else "; leave it out"))
