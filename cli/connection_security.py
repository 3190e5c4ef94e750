"""Security of a command's connections, as `--command-config FILE` and `--user NAME` give it: one for the whole run of a
command.

The file is a `client.properties` of Kafka's. TLS is loaded only where it is asked for.
"""

import os
import socket
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pqbroker.cli.parsing import Parameter, option
from pqbroker.cli.refusals import WrongInput
from pqbroker.security.client_login import OAUTHBEARER, ClientLogin
from pqbroker.security.client_properties import PLAIN, ClientSecurity, as_user, load_client_security
from pqbroker.security.errors import SecurityError
from pqbroker.security.passwords import TOKEN, given_password, password_for
from pqbroker.security.tls_options import TlsOptions, tls_options

if TYPE_CHECKING:
    import ssl

COMMAND_CONFIG = Parameter(
    "command_config",
    option(
        "--command-config", metavar="FILE", environment="PQBROKER_COMMAND_CONFIG",
        help="File with the security of the connection, in the form of Kafka's client.properties: security.protocol, "
        "ssl.* and sasl.*.",
    ),
    Path, is_list=False, default=None, is_required=False,
)  # fmt: skip
"""Option of every command that connects to a broker."""
HTTPS_SCHEME = "https://"
USER = Parameter(
    "user",
    option(
        "--user", metavar="NAME", environment="PQBROKER_USER",
        help="User to log in as, with the password in PQBROKER_PASSWORD or PQBROKER_PASSWORD_FILE, or typed.",
    ),
    str, is_list=False, default=None, is_required=False,
)  # fmt: skip
"""Option of every command that connects to a broker."""

_in_force: list[ClientSecurity] = [PLAIN]


def use_security(path: Path | None, user: str | None = None) -> None:
    """Have the connections of this run be as a file says, and log in as a user; WrongInput."""
    try:
        found = PLAIN if path is None else load_client_security(path)
    except SecurityError as error:
        raise WrongInput(f"--command-config: {error}") from None
    try:
        _in_force[0] = found if user is None else as_user(found, user, password_for(user, os.environ))
    except SecurityError as error:
        raise WrongInput(f"--user: {error}") from None


def use_mechanism(mechanism: str) -> None:
    """Log in by a mechanism that the broker has, from now on."""
    found = security()
    assert found.login is not None, "nobody chooses a mechanism without a login"
    _in_force[0] = replace(found, login=replace(found.login, mechanism=mechanism))


def security() -> ClientSecurity:
    """Return the security of this run."""
    return _in_force[0]


def kafka_context() -> "ssl.SSLContext | None":
    """Return the context of TLS for connections to Kafka listeners; None: they are plain. WrongInput."""
    options = security().tls
    return None if options is None else _context(options)


def secured(connected: socket.socket, host: str) -> socket.socket:
    """Return a connection to a Kafka listener, encrypted if it is to be. OSError, of which SSLError is one."""
    context = kafka_context()
    return connected if context is None else context.wrap_socket(connected, server_hostname=host)


def secured_http(connected: socket.socket, host: str) -> socket.socket:
    """Return a connection to an https address, encrypted: certificates are those of `ssl.*`. OSError, WrongInput."""
    found = security()
    try:
        options = found.tls or tls_options(found.texts)
    except SecurityError as error:
        raise WrongInput(f"--command-config: {error}") from None
    return _context(options).wrap_socket(connected, server_hostname=host)


def http_login() -> dict[str, str]:
    """Return the header of a request by HTTP that says who sends it; none without a login."""
    login = security().login
    try:
        token = given_password(os.environ, TOKEN)
    except SecurityError as error:
        raise WrongInput(str(error)) from None
    if login is None:
        return {} if token is None else {"Authorization": f"Bearer {token}"}
    if login.token_file is not None:
        return {"Authorization": f"Bearer {_token_of(login)}"}
    return {"Authorization": "Basic " + b64encode(f"{login.user}:{login.password}".encode()).decode()}


def client_options() -> dict[str, Any]:
    """Return the arguments for security of aiokafka's clients. WrongInput."""
    found = security()
    options: dict[str, Any] = {"security_protocol": found.protocol.value, "ssl_context": kafka_context()}
    if found.login is not None and found.login.token_file is not None:
        from pqbroker.security.token_provider import TokenProvider

        return options | {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": TokenProvider(found.login)}
    if found.login is not None:
        options |= found.login.aiokafka
    return options


def _token_of(login: ClientLogin) -> str:
    """Return the token that a file has now. WrongInput."""
    try:
        return login.token()
    except SecurityError as error:
        raise WrongInput(f"--command-config: {error}") from None


def why_refused(error: BaseException) -> str:
    """Return the cause of a connection that failed, in words that help where it is one of TLS."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message.rstrip('.')}; see ssl.truststore.location"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).lower().replace("_", " ")
        return _REASONS.get(reason, f"TLS failed: {reason}")
    return getattr(error, "strerror", None) or str(error)


def _context(options: TlsOptions) -> "ssl.SSLContext":
    from pqbroker.security.contexts import client_context

    try:
        return client_context(options)
    except SecurityError as error:
        raise WrongInput(f"--command-config: {error}") from None


_CERTIFICATE = "it wants a certificate of the client that it trusts; see ssl.keystore.location"
_REASONS = {
    "wrong version number": "it does not speak TLS; see security.protocol",
    "record layer failure": "it does not speak TLS; see security.protocol",
    "unexpected eof while reading": "it closed the connection during the TLS handshake",
    "tlsv13 alert certificate required": _CERTIFICATE,
    "sslv3 alert bad certificate": _CERTIFICATE,
    "tlsv1 alert unknown ca": _CERTIFICATE,
    "sslv3 alert handshake failure": "no version or cipher suite of TLS in common, or " + _CERTIFICATE,
}
