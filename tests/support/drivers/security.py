"""Security of a client under test, in the words of each library."""

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"


@dataclass(frozen=True, slots=True)
class Security:
    """Security protocol, user and certificates of a client."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""
    """File of the authority that the broker's certificate leads to."""
    certificate: str = ""
    """File with the client's certificate and its key."""
    token: str = ""
    """File with a token of an authorization server, for OAUTHBEARER."""

    @property
    def librdkafka(self) -> dict[str, Any]:
        found = {
            "security.protocol": self.protocol, "sasl.mechanism": self.mechanism, "sasl.username": self.user,
            "sasl.password": self.password, "ssl.ca.location": self.ca, "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.certificate,
        }  # fmt: skip
        given: dict[str, Any] = {name: text for name, text in found.items() if text}
        if self.token:
            given["oauth_cb"] = lambda _: (Path(self.token).read_text(), time.time() + 300)
        return given

    @property
    def kafka_python(self) -> dict[str, Any]:
        if self.token:
            provider = _KafkaPythonToken(self.token)
            sasl = {"sasl_mechanism": self.mechanism, "sasl_oauth_token_provider": provider}
            return {"security_protocol": self.protocol, **sasl, **self._context}
        return {"security_protocol": self.protocol, **self._sasl, **self._context}

    @property
    def aiokafka(self) -> dict[str, Any]:
        if self.token:
            provider = _AiokafkaToken(self.token)
            sasl = {"sasl_mechanism": self.mechanism, "sasl_oauth_token_provider": provider}
            return {"security_protocol": self.protocol, **sasl, **self._context}
        return {"security_protocol": self.protocol, **self._sasl, **self._context}

    @property
    def java(self) -> dict[str, str]:
        found = {"security.protocol": self.protocol}
        if self.token:
            found |= {
                "sasl.mechanism": self.mechanism, "sasl.oauthbearer.token.endpoint.url": Path(self.token).as_uri(),
                "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            }  # fmt: skip
        elif self.mechanism:
            module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
            user = f'username="{self.user}" password="{self.password}"'
            found["sasl.mechanism"] = self.mechanism
            found["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {user};"
        if self.ca:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if self.certificate:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        return found

    @property
    def java_options(self) -> list[str]:
        """Return the options of a JVM: it reads tokens of the files that these name."""
        if not self.token:
            return []
        named = {"urls": Path(self.token).as_uri(), "files": self.token}
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{kind}={text}" for kind, text in named.items()]

    @property
    def _sasl(self) -> dict[str, str]:
        if not self.mechanism:
            return {}
        return {
            "sasl_mechanism": self.mechanism, "sasl_plain_username": self.user, "sasl_plain_password": self.password
        }  # fmt: skip

    @property
    def _context(self) -> dict[str, ssl.SSLContext]:
        if not self.protocol.endswith("SSL"):
            return {}
        context = ssl.create_default_context(cafile=self.ca or None)
        if self.certificate:
            context.load_cert_chain(self.certificate)
        return {"ssl_context": context}


class _KafkaPythonToken(KafkaPythonTokens):  # type: ignore[misc]
    """Gives kafka-python a token of a file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def token(self) -> str:
        return self._path.read_text()


class _AiokafkaToken(AiokafkaTokens):  # type: ignore[misc]
    """Gives aiokafka a token of a file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    async def token(self) -> str:
        return self._path.read_text()


OPEN = Security()
"""No security at all."""
