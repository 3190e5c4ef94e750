"""Makes an authority and certificates that it signs, for tests and small networks. Time is an argument.

Keys are of the curve P-256: every client of TLS 1.2 knows it, and a handshake costs a tenth of one with RSA.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address

from pqbroker.security.errors import CRYPTOGRAPHY_CURE, SecurityError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        PKCS12Certificate,
        serialize_java_truststore,
        serialize_key_and_certificates,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:  # an installation without the extra
    raise SecurityError(f"making certificates needs the library cryptography: {CRYPTOGRAPHY_CURE}") from error

SKEW = timedelta(hours=1)
"""Certificates are valid from this time before they are made: clocks of clients differ."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority that signs certificates."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def issued(self) -> Issued:
        return _issued(self.certificate, self.key)


def make_authority(name: str, now: datetime, days: int) -> Authority:
    """Make an authority whose certificate it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, subject, key, (now - SKEW, now + timedelta(days=days)))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(
        x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        ),
        critical=True,
    )  # fmt: skip
    return Authority(builder.sign(key, SHA256()), key)


def load_authority(certificate: bytes, key: bytes) -> Authority:
    """Read an authority from PEM; SecurityError."""
    try:
        loaded = load_pem_private_key(key, None)
        found = x509.load_pem_x509_certificate(certificate)
    except (TypeError, ValueError) as error:
        raise SecurityError(f"certificate or key of the authority is invalid: {error}") from None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != found.public_key():
        raise SecurityError("the key is not that of the authority's certificate; give those that were made together")
    return Authority(found, loaded)


def issue(authority: Authority, name: str, hosts: Sequence[str], now: datetime, days: int) -> Issued:
    """Make a certificate for the common name `name`, for use by a broker at `hosts` (none: by a client)."""
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + timedelta(days=days), authority.certificate.not_valid_after_utc)
    builder = _builder(_name(name), authority.certificate.subject, key, (now - SKEW, until))
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else ())]
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return _issued(builder.sign(authority.key, SHA256()), key)


def pack_keys(issued: Issued, authority: Authority, name: str, password: str) -> bytes:
    """Return a certificate and its key as a key store in PKCS12, for Java."""
    key = load_pem_private_key(issued.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
    encryption = BestAvailableEncryption(password.encode())
    return serialize_key_and_certificates(name.encode(), key, certificate, [authority.certificate], encryption)


def pack_trust(authority: Authority, name: str, password: str) -> bytes:
    """Return the authority's certificate as a trust store in PKCS12, for Java."""
    trusted = [PKCS12Certificate(authority.certificate, name.encode())]
    return serialize_java_truststore(trusted, BestAvailableEncryption(password.encode()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(valid[0]).not_valid_after(valid[1])
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _name(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise SecurityError(f"{name!r} is no common name of a certificate: {error}") from None


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise SecurityError(f"{host!r} is no host name; give ASCII letters, digits, '.' and '-'") from None


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Issued(certificate.public_bytes(Encoding.PEM).decode(), text)
