"""Kafka's `ssl.*` settings, of a client or of a listener: where certificates and keys are, versions, ciphers.

They are read from texts by name; nothing is opened here. JKS is refused by what a file holds (`key_material.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pqbroker.security.errors import SecurityError

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_VERSIONS = (TLS_1_2, TLS_1_3)
_PROTOCOLS = ("TLS", *_VERSIONS)
HTTPS = "https"

_SUITES_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_SUITES_1_2 = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
"""Suites of TLS 1.2 by Java's name, with OpenSSL's."""
ONLY_DEFAULTS: Mapping[str, str] = {
    "security.providers": "",
    "ssl.engine.factory.class": "",
    "ssl.keymanager.algorithm": "SunX509",
    "ssl.provider": "",
    "ssl.secure.random.implementation": "",
    "ssl.trustmanager.algorithm": "PKIX",
}
"""Settings of Java's own libraries, with the one value that is accepted."""


@dataclass(frozen=True, slots=True)
class SecurityStore:
    """A key store or a trust store. `name` is the beginning of its settings: `ssl.keystore` or `ssl.truststore`."""

    name: str
    kind: str
    location: str | None
    password: str | None = field(repr=False)
    certificates: str | None = None
    """PEM in place: a certificate with its chain, or those that are trusted."""
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Options of TLS, of either end."""

    keys: SecurityStore | None
    """The own certificate and its key."""
    trust: SecurityStore | None
    """Certificates that the other end's certificate must lead to."""
    versions: tuple[str, ...] = _VERSIONS
    ciphers: str = ""
    """Suites of TLS 1.2 by OpenSSL's names, with colons; empty: the usual ones."""
    checks_host: bool = True
    """True if a client compares the broker's host with the names in its certificate."""


def tls_options(texts: Mapping[str, str]) -> TlsOptions:
    """Return the options of `ssl.*` settings: texts by name, those that are not given left out. SecurityError."""
    for name, only in ONLY_DEFAULTS.items():
        if texts.get(name, "") not in ("", only):
            raise SecurityError(f"{name} is {texts[name]!r}: it names a part of Java's libraries; leave it out")
    if (protocol := texts.get("ssl.protocol") or "TLS") not in _PROTOCOLS:
        raise SecurityError(f"ssl.protocol is {protocol!r}; choose from {', '.join(_PROTOCOLS)}")
    checked = texts.get("ssl.endpoint.identification.algorithm", HTTPS)
    if checked.lower() not in ("", HTTPS):
        raise SecurityError(f"ssl.endpoint.identification.algorithm is {checked!r}; give https, or nothing")
    versions, ciphers = _versions_and_ciphers(texts)
    return TlsOptions(key_store(texts), trust_store(texts), versions, ciphers, checks_host=bool(checked))


def key_store(texts: Mapping[str, str]) -> SecurityStore | None:
    """Return the key store; None if none is set. SecurityError for settings that exclude each other, as in Kafka."""
    store = _store("ssl.keystore", texts, "ssl.keystore.certificate.chain")
    key, chain = texts.get("ssl.keystore.key") or None, store.certificates
    if (key is None) != (chain is None):
        missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
        raise SecurityError(f"{missing} is not set; a key and its certificate chain are given together")
    _check_store(store)
    if store.location is None and key is None:
        return None
    if store.kind != PEM and store.password is None:
        raise SecurityError("ssl.keystore.password is not set, and the key store needs it")
    return SecurityStore(
        store.name, store.kind, store.location, store.password, chain, key, texts.get("ssl.key.password") or None
    )


def trust_store(texts: Mapping[str, str]) -> SecurityStore | None:
    """Return the trust store; None if none is set. SecurityError."""
    store = _store("ssl.truststore", texts, "ssl.truststore.certificates")
    _check_store(store)
    return None if store.location is None and store.certificates is None else store


def _store(name: str, texts: Mapping[str, str], certificates: str) -> SecurityStore:
    kind = (texts.get(f"{name}.type") or JKS).upper()
    if kind not in (PEM, PKCS12, JKS):
        raise SecurityError(f"{name}.type is {kind!r}; give PEM or PKCS12")
    location, password = texts.get(f"{name}.location") or None, texts.get(f"{name}.password") or None
    return SecurityStore(name, kind, location, password, texts.get(certificates) or None)


def _check_store(store: SecurityStore) -> None:
    name = store.name
    if store.certificates is not None and store.kind != PEM:
        raise SecurityError(f"certificates in place of a file are PEM, but {name}.type is {store.kind}; set it to PEM")
    if store.certificates is not None and store.location is not None:
        raise SecurityError(f"{name}.location is set, and certificates in place of a file too; leave one of them out")
    if store.kind == PEM and store.password is not None:
        raise SecurityError(f"{name}.password is set, but PEM has none; a key's is ssl.key.password")
    if store.location is None and store.certificates is None and store.password is not None:
        raise SecurityError(f"{name}.password is set, but {name}.location is not")


def _versions_and_ciphers(texts: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Suites are of one version each: one that has none of them is off, as in Java."""
    versions = _list(texts.get("ssl.enabled.protocols", "")) or _VERSIONS
    if wrong := [version for version in versions if version not in _VERSIONS]:
        raise SecurityError(f"ssl.enabled.protocols has {wrong[0]!r}; choose from {', '.join(_VERSIONS)}")
    suites = _list(texts.get("ssl.cipher.suites", ""))
    if not suites:
        return versions, ""
    of_1_3 = [suite for suite in suites if suite in _SUITES_1_3]
    unknown = [suite for suite in suites if suite not in _SUITES_1_3 and suite not in _SUITES_1_2]
    if unknown:
        known = ", ".join((*_SUITES_1_3, *_SUITES_1_2))
        raise SecurityError(f"ssl.cipher.suites has {unknown[0]!r}; choose from {known}")
    if of_1_3 and len(set(of_1_3)) < len(_SUITES_1_3) and TLS_1_3 in versions:
        raise SecurityError(
            f"ssl.cipher.suites has {', '.join(of_1_3)}: Python's ssl always offers all suites of TLS 1.3, so that a "
            "choice among them would have no effect; name all three, or none and TLSv1.2 as ssl.enabled.protocols"
        )
    ciphers = ":".join(_SUITES_1_2[suite] for suite in suites if suite in _SUITES_1_2)
    kept = tuple(version for version in versions if (of_1_3 if version == TLS_1_3 else ciphers))
    if not kept:
        raise SecurityError("ssl.cipher.suites has no suite of a version in ssl.enabled.protocols")
    return kept, ciphers


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())
