"""client.properties: what is read, what is refused, and that no secret is shown."""

from pathlib import Path

import pytest

from pqbroker.security.client_properties import PLAIN, client_security, load_client_security
from pqbroker.security.errors import SecurityError
from pqbroker.security.jaas import PLAIN_MODULE
from pqbroker.security.protocols import SecurityProtocol
from pqbroker.security.tls_options import PEM

PEM_TRUST = {"ssl.truststore.type": "PEM"}


def test_nothing_given_is_plain() -> None:
    assert client_security({}) == PLAIN
    assert client_security({"security.protocol": ""}).tls is None


@pytest.mark.parametrize("name", ["SSL", "ssl", "SASL_SSL"])
def test_an_encrypted_protocol_has_options_of_tls(name: str) -> None:
    user = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN_MODULE} required username=x password=y;"}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca"}
    found = client_security({"security.protocol": name, **trust, **user})
    assert found.protocol is SecurityProtocol(name.upper())
    assert found.tls is not None
    assert found.tls.trust is not None
    assert (found.tls.trust.kind, found.tls.trust.location) == (PEM, "/ca")
    assert found.tls.checks_host


def test_an_empty_algorithm_turns_off_the_check_of_the_host() -> None:
    found = client_security({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""})
    assert found.tls is not None
    assert not found.tls.checks_host


def test_other_names_of_java_clients_are_passed_over() -> None:
    found = client_security({"bootstrap.servers": "x:1", "request.timeout.ms": "1", "sasl.mechanism": "PLAIN"})
    assert found.protocol is SecurityProtocol.PLAINTEXT
    assert found.texts["sasl.mechanism"] == "PLAIN"


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS'; choose from PLAINTEXT, SSL"),
        ({"ssl.truststore.locations": "x"}, "unknown name ssl.truststore.locations; did you mean ssl.truststore.loc"),
        ({"security.protocols": "SSL"}, "did you mean security.protocol?"),
        ({"ssl.engine.factory.class": "x.Y"}, "names a part of Java's libraries"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "choose from TLSv1.2, TLSv1.3"),
        ({"ssl.protocol": "SSLv3"}, "choose from TLS, TLSv1.2"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "give https, or nothing"),
        ({"ssl.keystore.type": "BCFKS"}, "give PEM or PKCS12"),
        ({"ssl.keystore.location": "x"}, "ssl.keystore.password is not set"),
        ({"ssl.keystore.password": "hidden-1"}, "ssl.keystore.location is not"),
        ({"ssl.keystore.key": "hidden-1", "ssl.keystore.type": "PEM"}, "ssl.keystore.certificate.chain is not set"),
        ({**PEM_TRUST, "ssl.truststore.location": "x", "ssl.truststore.password": "hidden-1"}, "PEM has"),
        ({"ssl.truststore.certificates": "x"}, "set it to PEM"),
        ({**PEM_TRUST, "ssl.truststore.certificates": "x", "ssl.truststore.location": "y"}, "leave one"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "Python's ssl always offers all suites of TLS 1.3"),
        ({"ssl.cipher.suites": "SSL_RSA_WITH_RC4"}, "ssl.cipher.suites has 'SSL_RSA_WITH_RC4'"),
        (
            {"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.3"},
            "has no suite of a version",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_name(texts: dict[str, str], cause: str) -> None:
    with pytest.raises(SecurityError) as refused:
        client_security({"security.protocol": "SSL", **texts})
    assert cause in str(refused.value)
    assert "hidden-1" not in str(refused.value)


def test_suites_of_one_version_turn_off_the_other_as_in_java() -> None:
    of_1_2 = client_security(
        {"security.protocol": "SSL", "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
    ).tls
    assert of_1_2 is not None
    assert (of_1_2.versions, of_1_2.ciphers) == (("TLSv1.2",), "ECDHE-RSA-AES256-GCM-SHA384")
    all_of_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
    of_1_3 = client_security({"security.protocol": "SSL", "ssl.cipher.suites": all_of_1_3}).tls
    assert of_1_3 is not None
    assert of_1_3.versions == ("TLSv1.3",)


def test_no_secret_is_in_the_repr() -> None:
    texts = {
        "security.protocol": "SASL_SSL", "ssl.keystore.type": "PEM", "ssl.keystore.key": "hidden-1",
        "ssl.keystore.certificate.chain": "x", "ssl.key.password": "hidden-2", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="x" password="hidden-3";',
        "ssl.truststore.location": "/t", "ssl.truststore.password": "hidden-4",
    }  # fmt: skip
    assert "hidden" not in repr(client_security(texts))


def test_a_file_is_read_and_named_where_it_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# mine\nsecurity.protocol = SSL\nssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\n")
    assert load_client_security(path).protocol is SecurityProtocol.SSL
    path.write_text("ssl.provider=x\nsecurity.protocol=SSL\n")
    with pytest.raises(SecurityError, match=r"client\.properties: ssl\.provider is 'x'"):
        load_client_security(path)
    path.write_bytes(b"a=\xff")
    with pytest.raises(SecurityError, match="is not UTF-8 at byte 2"):
        load_client_security(path)
    with pytest.raises(SecurityError, match=r"cannot read .*nowhere"):
        load_client_security(tmp_path / "nowhere")
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(SecurityError, match="more than 1048576 bytes"):
        load_client_security(path)
