"""TLS contexts of options: PEM as file and in place, PKCS12, keys with passwords; refusals name setting and cure."""

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pqbroker.security.contexts import ClientAuth, client_context, server_context
from pqbroker.security.errors import SecurityError
from pqbroker.security.tls_options import tls_options
from tests.support.authority import PASSWORD, Certificates, certificates, write_certificates

Texts = dict[str, str]


@pytest.fixture(scope="module")
def made() -> Certificates:
    return certificates()


def shake(server: Texts, client: Texts, auth: ClientAuth = ClientAuth.NONE, host: str = "localhost") -> ssl.SSLObject:
    """A handshake in memory; the broker's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server_context(tls_options(server), auth).wrap_bio(to_server, to_client, server_side=True)
    theirs = client_context(tls_options(client)).wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(4):
        for end in (theirs, ours):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    theirs.write(b"ping")
    assert ours.read(9) == b"ping"
    return ours


def trusts(made: Certificates) -> Texts:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(made.ca)}


def test_pem_files_make_a_handshake_of_tls_1_3(made: Certificates) -> None:
    assert shake(made.listener(), trusts(made)).version() == "TLSv1.3"


def test_versions_can_be_chosen(made: Certificates) -> None:
    only = {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}
    ours = shake({**made.listener(), **only}, trusts(made))
    cipher = ours.cipher()
    assert ours.version() == "TLSv1.2"
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_pem_in_place_may_be_on_one_line(made: Certificates) -> None:
    pem = made.broker.read_text()
    certificate, key = (part.strip() for part in pem.split("-----BEGIN PRIVATE"))
    one_line = " ".join(certificate.split("\n"))
    server = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": one_line}
    server["ssl.keystore.key"] = "-----BEGIN PRIVATE" + " ".join(f" {key}".splitlines())
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": made.ca.read_text().replace("\n", "")}
    shake(server, trust)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_is_read_under_both_of_javas_names(made: Certificates, kind: str) -> None:
    keys = {"ssl.keystore.type": kind, "ssl.keystore.location": str(made.client_p12), "ssl.keystore.password": PASSWORD}
    trust = {"ssl.truststore.type": kind, "ssl.truststore.location": str(made.trust_p12)}
    trust["ssl.truststore.password"] = PASSWORD
    ours = shake({**made.listener(), **trust}, {**keys, **trust}, ClientAuth.REQUIRED)
    found = ours.getpeercert()
    assert found is not None
    assert found["subject"] == ((("commonName", "client"),),)


def test_an_encrypted_key_needs_its_password(made: Certificates, tmp_path: Path) -> None:
    key = load_pem_private_key((made.directory / "broker.key").read_bytes(), None)
    hidden = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hidden-1"))
    path = tmp_path / "both.pem"
    path.write_bytes((made.directory / "broker.crt").read_bytes() + hidden)
    server = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    shake({**server, "ssl.key.password": "hidden-1"}, trusts(made))
    with pytest.raises(SecurityError, match=r"the key of ssl\.keystore is encrypted; give its password"):
        server_context(tls_options(server), ClientAuth.NONE)
    with pytest.raises(SecurityError) as refused:
        server_context(tls_options({**server, "ssl.key.password": "hidden-2"}), ClientAuth.NONE)
    assert "ssl.key.password is wrong, or the PEM is damaged" in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_client_without_a_certificate_is_refused_where_one_is_required(made: Certificates) -> None:
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake(made.asks_clients(), trusts(made), ClientAuth.REQUIRED)
    shake(made.asks_clients(), trusts(made), ClientAuth.REQUESTED)


def test_a_stranger_is_refused_by_either_end(made: Certificates, tmp_path: Path) -> None:
    others = write_certificates(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake(made.listener(), trusts(others))
    theirs = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(others.client)}
    for auth in (ClientAuth.REQUIRED, ClientAuth.REQUESTED):
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            shake(made.asks_clients(), {**trusts(made), **theirs}, auth)


def test_a_client_compares_the_host_unless_told_otherwise(made: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(made.listener(), trusts(made), host="elsewhere")
    shake(made.listener(), {**trusts(made), "ssl.endpoint.identification.algorithm": ""}, host="elsewhere")


@pytest.mark.parametrize(
    ("data", "kind", "cause"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", "JKS", "convert it: keytool -importkeystore -srckeystore "),
        (b"\xfe\xed\xfe\xed\0\0\0\2", "PKCS12", "set ssl.keystore.location="),
        (b"\xce\xce\xce\xce", "JKS", "is a JKS store"),
        (b"-----BEGIN CERTIFICATE-----", "PKCS12", "is PEM; set ssl.keystore.type=PEM"),
        (b"\x30\x82", "PEM", "is not PEM; for PKCS12 set"),
        (b"\x30\x82", "PKCS12", "ssl.keystore.password may be wrong"),
        (b"nothing", "JKS", "is no key store"),
        (b"-----BEGIN X-----", "PEM", "has no certificate in PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "PEM", "has no private key in PEM"),
        (b"\xff-----BEGIN CERTIFICATE-----", "PEM", "is not UTF-8"),
    ],
)
def test_what_is_no_key_store_is_refused_with_the_cure(tmp_path: Path, data: bytes, kind: str, cause: str) -> None:
    path = tmp_path / "store"
    path.write_bytes(data)
    texts = {"ssl.keystore.type": kind, "ssl.keystore.location": str(path)}
    if kind != "PEM":
        texts["ssl.keystore.password"] = "hidden-1"
    with pytest.raises(SecurityError) as refused:
        server_context(tls_options(texts), ClientAuth.NONE)
    assert cause in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_files_that_do_not_exist_or_do_not_fit_are_named(made: Certificates, tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=r"cannot read ssl\.keystore\.location /nowhere: No such file"):
        server_context(tls_options({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/nowhere"}), ClientAuth.NONE)
    mixed = tmp_path / "mixed.pem"
    mixed.write_text((made.directory / "broker.crt").read_text() + (made.directory / "client.key").read_text())
    with pytest.raises(SecurityError, match="the key is not that of the certificate"):
        server_context(tls_options({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(mixed)}), ClientAuth.NONE)
    with pytest.raises(SecurityError, match="no certificate is set"):
        server_context(tls_options({}), ClientAuth.NONE)
    with pytest.raises(SecurityError, match=r"ssl\.client\.auth is required, and no authority is set"):
        server_context(tls_options(made.listener()), ClientAuth.REQUIRED)
