"""Settings of listeners: their protocols, and Kafka's `ssl.*`, as `declare.rows` reads them.

Each can be set for one listener, before the others: `listener.name.NAME.ssl.keystore.location`. What they may say is
checked where it is read (`security/tls_options.py`), by a listener that is encrypted.
"""

from pqbroker.conf.declare import Kind, setting
from pqbroker.security.protocols import parse_protocol_map

TLS = """\
= Of TLS.
ssl.allow.dn.changes | boolean | false | | Accept a new certificate of a listener for another distinguished name than that of the one in use, when it is given while the node runs.
ssl.allow.san.changes | boolean | false | | Accept a new certificate of a listener for other hosts than the one in use, when it is given while the node runs.
ssl.cipher.suites | list | | | Cipher suites by Java's names; empty: the usual ones. A version without a suite in the list is off. Of TLS 1.3 all three or none.
ssl.client.auth | string | none | none requested required | Demand on a client's certificate: none, checked where the client has one, or required.
ssl.enabled.protocols | list | TLSv1.2,TLSv1.3 | TLSv1.2 TLSv1.3 | Versions of TLS that clients may use.
ssl.key.password | password | null | | Password of the private key, where it is encrypted.
ssl.keystore.certificate.chain | password | null | | The broker's certificate and its chain in PEM, in place of a file.
ssl.keystore.key | password | null | | Private key in PEM, in place of a file.
ssl.keystore.location | string | null | | File with the broker's certificate, its chain and its key. A changed file is taken for new connections within seconds.
ssl.keystore.password | password | null | | Password of a key store in PKCS12.
ssl.keystore.type | string | JKS | | Form of the key store: PEM or PKCS12. JKS, Kafka's default, takes PKCS12 too, as Java does, and refuses JKS itself.
ssl.principal.mapping.rules | string | DEFAULT | | Rules that make a user's name of a certificate's distinguished name: RULE:PATTERN/REPLACEMENT/[LU], with commas; the first that fits counts.
ssl.protocol | string | TLSv1.3 | TLS TLSv1.2 TLSv1.3 | Version that a context of Java is made for. `ssl.enabled.protocols` decides.
ssl.truststore.certificates | password | null | | Certificates in PEM of the authorities of clients' certificates, in place of a file.
ssl.truststore.location | string | null | | File with the certificates of the authorities of clients' certificates. A changed file is taken for new connections within seconds.
ssl.truststore.password | password | null | | Password of a trust store in PKCS12.
ssl.truststore.type | string | JKS | | Form of the trust store: PEM or PKCS12, as for `ssl.keystore.type`.
"""  # noqa: E501 (a row is a line)

PROTOCOL_MAP = setting(
    "listener.security.protocol.map", Kind.STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "Security protocol of each listener by its name: NAME:PROTOCOL, with commas. A listener that is not in it is "
    "plain, unless the map is set: then the node does not start.", read=parse_protocol_map,
)  # fmt: skip
HANDSHAKES_MAX = setting(
    "pqbroker.handshakes.max", Kind.INT, 1000,
    "TLS handshakes under way at most, over all listeners; an address with many has at most seven eighths of them. "
    "Above, the oldest handshake of the address with the most ends.", low=1,
)  # fmt: skip
HANDSHAKE_TIMEOUT_MS = setting(
    "pqbroker.handshake.timeout.ms", Kind.INT, 10_000,
    "Time that a client has for a TLS handshake; then its connection closes.", low=1,
)  # fmt: skip
