"""Settings of logins: mechanisms, users, and limits of clients that have not logged in. `broker.BrokerSettings` lists
them."""

from typing import Final

from pqbroker.conf.declare import Kind, setting
from pqbroker.conf.oauth import OAUTHBEARER

MIB = 1 << 20
SASL_PLAIN: Final = "PLAIN"
MECHANISMS: Final = (SASL_PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
"""SASL mechanisms that listeners can have."""

ENABLED_MECHANISMS = setting(
    "sasl.enabled.mechanisms", Kind.LIST, ("GSSAPI",),
    f"SASL mechanisms of listeners with a login: {', '.join(MECHANISMS)}. Kafka's default, GSSAPI, is not served: such "
    "a listener does not start.",
)  # fmt: skip
SERVER_RECEIVE_BYTES_MAX = setting(
    "sasl.server.max.receive.size", Kind.INT, 524_288,
    "Bytes of a request before its client has logged in at most; a larger one closes the connection.", low=64,
)  # fmt: skip
JAAS_CONFIG = setting(
    "sasl.jaas.config", Kind.PASSWORD, None,
    "Users of PLAIN with their passwords, on one listener: listener.name.NAME.plain.sasl.jaas.config, with "
    'PlainLoginModule and user_NAME="PASSWORD" for each. They exist beside the users of the broker, and change only '
    "with this setting.",
)  # fmt: skip
CONNECTIONS_REAUTH_MS_MAX = setting(
    "connections.max.reauth.ms", Kind.LONG, 0,
    "Time after which a client must log in again on its connection (KIP-368), or be disconnected; 0: never.", low=0,
)  # fmt: skip
FAILED_LOGIN_DELAY_MS = setting(
    "connection.failed.authentication.delay.ms", Kind.INT, 100,
    "Time by which the answer to a failed login is delayed, and with it the end of its connection.",
    low=0, high=10_000,
)  # fmt: skip
LOGIN_BYTES_MAX = setting(
    "pqbroker.login.bytes.max", Kind.LONG, 16 * MIB,
    "Request bytes of all connections together whose clients have not logged in, being served or arriving; above, "
    "reading pauses.", low=MIB,
)  # fmt: skip
LOGIN_TIMEOUT_MS = setting(
    "pqbroker.login.timeout.ms", Kind.INT, 30_000,
    "Time that a client has to log in; then its connection closes.", low=100,
)  # fmt: skip
LOGIN_CHECKS_MAX = setting(
    "pqbroker.login.checks.max", Kind.INT, 256,
    "Passwords that wait for their check at most; one more closes its connection without an error, so that the client "
    "tries again. The last eighth is kept for addresses and users with few.", low=8,
)  # fmt: skip
USERS_MAX = setting(
    "pqbroker.users.max", Kind.INT, 10_000, "Users at most; one more is refused.", low=1, high=1_000_000
)
TOKENS_MAX = setting(
    "pqbroker.tokens.max", Kind.INT, 10_000, "Tokens of all users together at most; one more is refused.", low=1,
    high=1_000_000,
)  # fmt: skip
USER_NAME_BYTES_MAX = setting(
    "pqbroker.user.name.bytes.max", Kind.INT, 256, "Bytes of the name of a new user at most.", low=1, high=4096
)
SERVES_WITHOUT_LOGIN = setting(
    "pqbroker.listeners.without.login", Kind.BOOLEAN, False,
    "Serve a directory that has users on listeners beyond loopback whose clients need not log in. If false, such a "
    "node does not start.",
)  # fmt: skip
