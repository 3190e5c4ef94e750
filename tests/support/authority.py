"""Certificates of one authority, made once for all tests of a process: files in a directory of theirs."""

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from pqbroker.security.issuing import Authority, issue, make_authority, pack_keys, pack_trust

PASSWORD = "changeit"
NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Certificates:
    """An authority and files that it signed. `broker` and `client` are PEM with chain and key."""

    authority: Authority
    directory: Path

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def broker(self) -> Path:
        return self.directory / "broker.pem"

    @property
    def client(self) -> Path:
        return self.directory / "client.pem"

    @property
    def client_p12(self) -> Path:
        return self.directory / "client.p12"

    @property
    def trust_p12(self) -> Path:
        return self.directory / "trust.p12"

    def listener(self) -> dict[str, str]:
        """Return the settings of a listener with the broker's certificate."""
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.broker)}

    def asks_clients(self) -> dict[str, str]:
        """Return the settings of a listener that wants a certificate of each client."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        return {**self.listener(), **trust, "ssl.client.auth": "required"}


    def second_broker(self) -> str:
        """Make another certificate of a broker: CN=second, with chain and key."""
        issued = issue(self.authority, "second", NAMES, datetime.now(UTC), 1)
        return issued.certificate + issued.key


def write_certificates(directory: Path, *, days: int = 2, names: tuple[str, ...] = NAMES) -> Certificates:
    """Make an authority, a broker's certificate and one of a client, and write them."""
    now = datetime.now(UTC)
    authority = make_authority("tests", now - timedelta(minutes=1), days)
    for name, hosts in (("broker", names), ("client", ())):
        issued = issue(authority, name, hosts, now, days)
        (directory / f"{name}.pem").write_text(issued.certificate + issued.key)
        (directory / f"{name}.crt").write_text(issued.certificate)
        (directory / f"{name}.key").write_text(issued.key)
        (directory / f"{name}.p12").write_bytes(pack_keys(issued, authority, name, PASSWORD))
    (directory / "ca.pem").write_text(authority.issued.certificate)
    (directory / "trust.p12").write_bytes(pack_trust(authority, "ca", PASSWORD))
    return Certificates(authority, directory)


@cache
def certificates() -> Certificates:
    """Return those that all tests of a process share; the system forgets the directory."""
    return write_certificates(Path(tempfile.mkdtemp(prefix="pqbroker-tls-")))
