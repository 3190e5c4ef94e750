"""Security of a client under test, in the words of each library."""

import ssl
from dataclasses import dataclass
from typing import Any


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

    @property
    def librdkafka(self) -> dict[str, Any]:
        found = {
            "security.protocol": self.protocol, "sasl.mechanism": self.mechanism, "sasl.username": self.user,
            "sasl.password": self.password, "ssl.ca.location": self.ca, "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.certificate,
        }  # fmt: skip
        return {name: text for name, text in found.items() if text}

    @property
    def kafka_python(self) -> dict[str, Any]:
        return {"security_protocol": self.protocol, **self._sasl, **self._context}

    @property
    def aiokafka(self) -> dict[str, Any]:
        return {"security_protocol": self.protocol, **self._sasl, **self._context}

    @property
    def java(self) -> dict[str, str]:
        found = {"security.protocol": self.protocol}
        if self.mechanism:
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


OPEN = Security()
"""No security at all."""
