"""Certificates and keys out of files and settings: PEM as it is, PKCS12 with the library `cryptography`, JKS refused.

A library is loaded for PKCS12 alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pqbroker.security.errors import SecurityError
from pqbroker.security.tls_options import JKS, PEM, SecurityStore

STORE_BYTES_MAX = 16 << 20
_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+?)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_CHARACTERS = 64
_CERTIFICATES = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A certificate with its chain, and its key, both as PEM."""

    chain: str
    key: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    """The key's; None: it is not encrypted."""


def load_keys(store: SecurityStore) -> KeyMaterial:
    """Read a key store. SecurityError names the setting, the file, the cause and the cure."""
    if store.key is not None and store.certificates is not None:
        chain, key = pem_blocks(store.certificates, _is_certificate), pem_blocks(store.key, _is_key)
        return KeyMaterial(
            _present(chain, store, "certificate in ssl.keystore.certificate.chain"),
            _present(key, store, "private key in ssl.keystore.key"), store.key_password,
        )  # fmt: skip
    data = _read(store)
    if store.kind == PEM:
        text = _text(store, data)
        chain, key = pem_blocks(text, _is_certificate), pem_blocks(text, _is_key)
        return KeyMaterial(
            _present(chain, store, "certificate"), _present(key, store, "private key"), store.key_password
        )
    from pqbroker.security.pkcs12 import open_keys

    chain, key = open_keys(store, data)
    return KeyMaterial(chain, key)


def load_trust(store: SecurityStore) -> str:
    """Read a trust store: certificates as PEM. SecurityError."""
    if store.certificates is not None:
        return _present(pem_blocks(store.certificates, _is_certificate), store, "certificate")
    data = _read(store)
    if store.kind == PEM:
        return _present(pem_blocks(_text(store, data), _is_certificate), store, "certificate")
    from pqbroker.security.pkcs12 import open_trust

    return open_trust(store, data)


def pem_blocks(text: str, is_wanted: Callable[[str], bool]) -> str:
    """Return the blocks of PEM with a wanted label, each on lines of its own: in settings they may be on one."""
    return "".join(
        f"-----BEGIN {label}-----\n{_lines(body)}\n-----END {label}-----\n"
        for label, body in _BLOCK.findall(text)
        if is_wanted(label)
    )


def _lines(body: str) -> str:
    if ":" in body:
        return body.strip()  # headers of an encrypted key in the old form: its lines count
    packed = "".join(body.split())
    return "\n".join(packed[at : at + _LINE_CHARACTERS] for at in range(0, len(packed), _LINE_CHARACTERS))


def _is_certificate(label: str) -> bool:
    return label in _CERTIFICATES


def _is_key(label: str) -> bool:
    return label.endswith("PRIVATE KEY")


def _present(found: str, store: SecurityStore, what: str) -> str:
    if not found:
        place = store.location or f"{store.name}.*"
        raise SecurityError(f"{place} has no {what} in PEM, which begins with -----BEGIN")
    return found


def _read(store: SecurityStore) -> bytes:
    assert store.location is not None
    try:
        with Path(store.location).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise SecurityError(f"cannot read {store.name}.location {store.location}: {cause}") from None
    if len(data) > STORE_BYTES_MAX:
        raise SecurityError(f"{store.name}.location {store.location} has more than {STORE_BYTES_MAX} bytes")
    _check_form(store, data)
    return data


def _check_form(store: SecurityStore, data: bytes) -> None:
    """Refuse JKS, and a file of another kind than its type says. PKCS12 is taken under type JKS too, as in Java."""
    location = store.location
    if data.startswith(_JKS_MAGICS):
        raise SecurityError(
            f"{store.name}.location {location} is a JKS store, which is not read here; convert it: keytool "
            f"-importkeystore -srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12, then set "
            f"{store.name}.location={location}.p12 and {store.name}.type=PKCS12"
        )
    is_pem = b"-----BEGIN" in data
    if is_pem and store.kind != PEM:
        raise SecurityError(f"{store.name}.location {location} is PEM; set {store.name}.type=PEM")
    if not is_pem and store.kind == PEM:
        raise SecurityError(f"{store.name}.location {location} is not PEM; for PKCS12 set {store.name}.type=PKCS12")
    if store.kind == JKS and not data.startswith(b"\x30"):
        raise SecurityError(f"{store.name}.location {location} is no key store; give one in PEM or PKCS12 and its type")


def _text(store: SecurityStore, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SecurityError(f"{store.name}.location {store.location} is not UTF-8") from None
