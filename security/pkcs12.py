"""Key stores and trust stores in PKCS12, by `cryptography`: the only reader of this form, loaded when one is opened."""

from collections.abc import Sequence

from pqbroker.security.errors import CRYPTOGRAPHY_CURE, SecurityError
from pqbroker.security.tls_options import SecurityStore

try:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, PKCS12KeyAndCertificates
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12 as _load
except ImportError as error:  # an installation without the extra
    raise SecurityError(f"PKCS12 needs the library cryptography: {CRYPTOGRAPHY_CURE}; or use PEM") from error


def open_keys(store: SecurityStore, data: bytes) -> tuple[str, str]:
    """Return the certificate with its chain, and the key, as PEM. SecurityError."""
    found = _open(store, data)
    if found.key is None or found.cert is None:
        raise SecurityError(f"{store.name}.location {store.location} holds no private key with its certificate")
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return _pem([found.cert, *found.additional_certs]), key


def open_trust(store: SecurityStore, data: bytes) -> str:
    """Return the certificates as PEM. SecurityError."""
    found = _open(store, data)
    certificates = [*([found.cert] if found.cert else ()), *found.additional_certs]
    if not certificates:
        raise SecurityError(f"{store.name}.location {store.location} holds no certificate")
    return _pem(certificates)


def _open(store: SecurityStore, data: bytes) -> PKCS12KeyAndCertificates:
    try:
        return _load(data, None if store.password is None else store.password.encode())
    except ValueError as error:
        raise SecurityError(
            f"cannot open {store.name}.location {store.location}: {str(error).rstrip('.')}; {store.name}.password may "
            "be wrong"
        ) from None


def _pem(certificates: Sequence[PKCS12Certificate]) -> str:
    return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in certificates)
