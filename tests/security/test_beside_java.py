"""Names of certificates and rules for users, beside Java's and Kafka's own."""

import base64
import string
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pqbroker.security.distinguished_names import certificate_facts
from pqbroker.security.principal_rules import parse_principal_rules, user_of
from tests.support.depth import examples
from tests.support.java import program

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = (
    NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS, NameOID.USER_ID, NameOID.DOMAIN_COMPONENT,
    NameOID.EMAIL_ADDRESS, NameOID.TITLE, NameOID.SERIAL_NUMBER, NameOID.GIVEN_NAME,
)  # fmt: skip
ISSUER = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def java() -> Iterator[Ask]:
    process = program.start("Principals", [], program.NEWER)

    def ask(*words: str | bytes) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        kind, *rest = words
        packed = [base64.b64encode(word.encode() if isinstance(word, str) else word).decode() for word in rest]
        process.stdin.write(" ".join((str(kind), *packed)) + "\n")
        process.stdin.flush()
        return base64.b64decode(process.stdout.readline()).decode()

    yield ask
    program.stop(process)


def certificate(name: x509.Name) -> bytes:
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(ISSUER).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    return builder.sign(KEY, SHA256()).public_bytes(Encoding.DER)


TEXTS = st.text(st.sampled_from(string.printable + "äöüß日本 \0,+\"\\<>;=#$/"), min_size=1, max_size=12)
ATTRIBUTES = st.builds(
    lambda kind, text: x509.NameAttribute(kind, text, _ASN1Type.UTF8String), st.sampled_from(KINDS), TEXTS
)
NAMES = st.lists(
    st.lists(ATTRIBUTES, min_size=1, max_size=3, unique_by=lambda each: each.oid).map(
        x509.RelativeDistinguishedName
    ),
    min_size=1, max_size=4,
).map(x509.Name)  # fmt: skip


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES)
def test_a_subject_is_printed_as_java_prints_it(java: Ask, name: x509.Name) -> None:
    der = certificate(name)
    assert certificate_facts(der).subject == java("name", der)


@pytest.mark.parametrize(
    "kind", [_ASN1Type.PrintableString, _ASN1Type.IA5String, _ASN1Type.BMPString, _ASN1Type.T61String]
)
def test_texts_of_older_forms_are_printed_as_java_prints_them(java: Ask, kind: _ASN1Type) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Old Name", kind)])
    der = certificate(name)
    assert certificate_facts(der).subject == java("name", der)


PARTS = st.sampled_from(
    ["^", "$", "CN=", "(.*?)", "([^,]+)", ".*", ",", "OU=", r"\,", "(?<who>[a-z]+)", "a", "$1", "$2", "${who}", r"\$",
     r"\/", "$12", "$0", " ", "L", "U"]
)  # fmt: skip
PIECES = st.lists(PARTS, max_size=6).map("".join)
RULES = st.lists(
    st.one_of(st.just("DEFAULT"), st.builds("RULE:{}/{}/{}".format, PIECES, PIECES, st.sampled_from(["", "L", "U"]))),
    min_size=1, max_size=3,
).map(",".join)  # fmt: skip
SUBJECTS = ["CN=a", "CN=alice,OU=x", "CN=kafka1.example.com,OU=,O=Big Co", "OU=b", "", r"CN=a\,b,O=c"]


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=RULES, subject=st.sampled_from(SUBJECTS))
def test_rules_make_the_user_that_kafka_makes(java: Ask, rules: str, subject: str) -> None:
    theirs = java("user", rules, subject)
    try:
        ours = user_of(parse_principal_rules(rules), subject)
    except ValueError:
        assert theirs.startswith("!"), (rules, theirs)
        return
    if theirs == "!NoMatchingRule":
        assert ours is None
    elif not theirs.startswith("!"):
        assert ours == theirs


@pytest.mark.parametrize(
    ("rules", "subject", "user"),
    [
        ("DEFAULT", "CN=kafka1", "CN=kafka1"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=serviceuser,OU=ServiceUsers,O=Unknown", "serviceuser"),
        (
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
            "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin",
        ),
        ("RULE:.*CN=([^,]+).*/$1/U, DEFAULT", "OU=x,CN=bob,O=y", "BOB"),
        ("RULE:^CN=(.*)$/x/", "OU=x", None),
        (r"RULE:^CN=a\/b$/a\/c/", "CN=a/b", "a/c"),
        ("", "CN=a", None),
    ],
)  # fmt: skip
def test_kafkas_own_examples(java: Ask, rules: str, subject: str, user: str | None) -> None:
    assert user_of(parse_principal_rules(rules), subject) == user
    assert java("user", rules, subject) == (user or "!NoMatchingRule")


@pytest.mark.parametrize("rules", ["DEFAULT;DEFAULT", "RULE:a/b", "default", "RULE:(/x/", "RULE:a/b/c", "x,DEFAULT"])
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"does not begin with a rule|is no regular expression"):
        parse_principal_rules(rules)


def test_a_cut_certificate_is_none() -> None:
    der = certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")]))
    for size in range(len(der)):
        with pytest.raises((ValueError, IndexError)):
            certificate_facts(der[:size])


def test_the_last_day_and_the_hosts_are_read() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(datetime(2060, 2, 3, 4, 5, 6, tzinfo=UTC))
    hosts = x509.SubjectAlternativeName([x509.DNSName("one"), x509.DNSName("two")])
    der = builder.add_extension(hosts, critical=False).sign(KEY, SHA256()).public_bytes(Encoding.DER)
    facts = certificate_facts(der)
    assert facts.not_after == "20600203040506"
    assert len(facts.hosts) == 2
    assert certificate_facts(certificate(name)).not_after == "20260102000000"


