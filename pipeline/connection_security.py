"""Security of a job's connections to brokers, as `--command-config FILE` gives it: one for the whole job.

The file is a `client.properties` of Kafka's. Spark's source and sink and Java's admin client take its entries as they
are; nothing of it is printed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pqbroker.pipeline.errors import JobError
from pqbroker.security.client_login import OAUTHBEARER, TOKEN_URL
from pqbroker.security.client_properties import PLAIN, ClientSecurity, client_security, load_client_security
from pqbroker.security.errors import SecurityError

if TYPE_CHECKING:
    import ssl

    from pyspark.sql import SparkSession

_PASSED_ON = ("security.", "ssl.", "sasl.")
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
"""Class that logs in by a token in Java's clients; their default makes unsigned tokens of its own."""
_ALLOWED = ("urls", "files")
"""Ends of the properties of a Java that name what its clients may read a token from: of releases before 4.0, and later.
"""

_in_force: list[ClientSecurity] = [PLAIN]


def use_security(path: Path | None) -> None:
    """Have the connections of this job be as a file says; JobError."""
    try:
        _in_force[0] = PLAIN if path is None else load_client_security(path)
    except SecurityError as error:
        raise JobError(f"--command-config: {error}") from None


def client_settings() -> dict[str, str]:
    """Return the settings for security of a Kafka client of Java's, by name."""
    found = _in_force[0]
    by_token = {} if found.login is None or found.login.mechanism != OAUTHBEARER else {_LOGIN_HANDLER: _TOKEN_HANDLER}
    return by_token | {name: text for name, text in found.texts.items() if name.startswith(_PASSED_ON)}


def spark_options() -> dict[str, str]:
    """Return the options for security of Spark's Kafka source and sink."""
    return {f"kafka.{name}": text for name, text in client_settings().items()}


def http_login() -> tuple[str, str] | Path | None:
    """Return the login of requests by HTTP: user and password, or the file of a token; None: nobody logs in."""
    login = _in_force[0].login
    if login is None or login.token_file is not None:
        return None if login is None else login.token_file
    return login.user, login.password


def tls() -> "ssl.SSLContext | None":
    """Return the context of TLS for https; None: that of the system."""
    options = _in_force[0].tls
    if options is None:
        return None
    from pqbroker.security.contexts import client_context

    return client_context(options)


def allow_token(spark: "SparkSession") -> None:
    """Let the Kafka clients of Spark's Java read the token of this job's login, if it has one."""
    found = _in_force[0]
    if found.login is not None and found.login.token_file is not None:
        system: Any = spark.sparkContext._jvm
        for end, place in zip(_ALLOWED, (found.texts[TOKEN_URL], str(found.login.token_file)), strict=True):
            system.java.lang.System.setProperty(f"org.apache.kafka.sasl.oauthbearer.allowed.{end}", place)


def worker_options(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments for security of aiokafka's clients, in a worker of Spark's: `texts` as `client_settings`."""
    if not texts:
        return {}
    found = client_security(texts)
    options: dict[str, Any] = {"security_protocol": found.protocol.value}
    if found.login is not None and found.login.token_file is not None:
        from pqbroker.security.token_provider import TokenProvider

        options |= {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": TokenProvider(found.login)}
    elif found.login is not None:
        options |= found.login.aiokafka
    if found.tls is None:
        return options
    from pqbroker.security.contexts import client_context

    return {**options, "ssl_context": client_context(found.tls)}
