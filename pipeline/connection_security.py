"""Security of a job's connections to brokers, as `--command-config FILE` gives it: one for the whole job.

The file is a `client.properties` of Kafka's. Spark's source and sink and Java's admin client take its entries as they
are; nothing of it is printed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pqbroker.pipeline.errors import JobError
from pqbroker.security.client_properties import PLAIN, ClientSecurity, client_security, load_client_security
from pqbroker.security.errors import SecurityError

_PASSED_ON = ("security.", "ssl.", "sasl.")

_in_force: list[ClientSecurity] = [PLAIN]


def use_security(path: Path | None) -> None:
    """Have the connections of this job be as a file says; JobError."""
    try:
        _in_force[0] = PLAIN if path is None else load_client_security(path)
    except SecurityError as error:
        raise JobError(f"--command-config: {error}") from None


def client_settings() -> dict[str, str]:
    """Return the settings for security of a Kafka client of Java's, by name."""
    return {name: text for name, text in _in_force[0].texts.items() if name.startswith(_PASSED_ON)}


def spark_options() -> dict[str, str]:
    """Return the options for security of Spark's Kafka source and sink."""
    return {f"kafka.{name}": text for name, text in client_settings().items()}


def worker_options(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments for security of aiokafka's clients, in a worker of Spark's: `texts` as `client_settings`."""
    if not texts:
        return {}
    found = client_security(texts)
    if found.login is not None and found.login.token_file is not None:
        raise SecurityError("the producers of a relay log in by a password, not by a token; give SCRAM or PLAIN")
    login = {} if found.login is None else found.login.aiokafka
    options = {"security_protocol": found.protocol.value, **login}
    if found.tls is None:
        return options
    from pqbroker.security.contexts import client_context

    return {**options, "ssl_context": client_context(found.tls)}
