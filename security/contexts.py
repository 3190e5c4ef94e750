"""TLS contexts of Python's ssl, made of options: one for a listener, one for a client."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from pqbroker.security.errors import SecurityError
from pqbroker.security.key_material import KeyMaterial, load_keys, load_trust
from pqbroker.security.tls_options import TLS_1_2, TLS_1_3, TlsOptions

_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}


class ClientAuth(Enum):
    """Demands on the certificate of a client (`ssl.client.auth`)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


def server_context(options: TlsOptions, auth: ClientAuth) -> ssl.SSLContext:
    """Return the context of a listener. SecurityError; files are read, so it belongs into a thread where one runs."""
    if options.keys is None:
        raise SecurityError(
            "no certificate is set: give ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, options)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    load_into(context, load_keys(options.keys), options.keys.name)
    if auth is not ClientAuth.NONE:
        if options.trust is None:
            raise SecurityError(
                f"ssl.client.auth is {auth.value}, and no authority is set for certificates of clients: give "
                "ssl.truststore.location or ssl.truststore.certificates"
            )
        _trust(context, options)
        context.verify_mode = ssl.CERT_REQUIRED if auth is ClientAuth.REQUIRED else ssl.CERT_OPTIONAL
    return context


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the context of a client. SecurityError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, options)
    context.check_hostname = options.checks_host
    if options.trust is None:
        context.load_default_certs()
    else:
        _trust(context, options)
    if options.keys is not None:
        load_into(context, load_keys(options.keys), options.keys.name)
    return context


def load_into(context: ssl.SSLContext, material: KeyMaterial, name: str) -> None:
    """Load a certificate and its key; `name` is that of the store, for SecurityError."""

    def password() -> str:
        if material.password is None:
            raise SecurityError(f"the key of {name} is encrypted; give its password as ssl.key.password")
        return material.password

    with _as_file(material.chain + material.key) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            raise SecurityError(f"certificate and key of {name} do not load: {_cause(error, material)}") from None


def _cause(error: ssl.SSLError, material: KeyMaterial) -> str:
    if error.reason is None:  # OpenSSL's reader of PEM
        return "ssl.key.password is wrong, or the PEM is damaged" if material.password else "the PEM is damaged"
    reason = error.reason.lower().replace("_", " ")
    return {"key values mismatch": "the key is not that of the certificate"}.get(reason, reason)


def _context(protocol: int, options: TlsOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = sorted(_VERSIONS[version] for version in options.versions)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # Java trusts each certificate of a trust store
    if options.ciphers:
        try:
            context.set_ciphers(options.ciphers)
        except ssl.SSLError:
            raise SecurityError("ssl.cipher.suites has no suite that this system's OpenSSL knows") from None
    return context


def _trust(context: ssl.SSLContext, options: TlsOptions) -> None:
    assert options.trust is not None
    try:
        context.load_verify_locations(cadata=load_trust(options.trust))
    except ssl.SSLError as error:
        raise SecurityError(f"certificates of {options.trust.name} do not load: {error.reason or error}") from None


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Give a text as a file, which Python's ssl wants for a key: in memory where the system can, else for its user."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "w") as file:
                file.write(text)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as directory:  # mode 0700
        path = Path(directory, "key")
        path.write_text(text)
        yield str(path)
