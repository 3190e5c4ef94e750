"""The file with what a registry wants to know of its client, by the names that Confluent's clients use.

    basic.auth.user.info = USER:PASSWORD
    bearer.auth.token = TOKEN
    schema.registry.ssl.truststore.location = FILE, and the other properties of `ssl.` behind this prefix

Its texts are in no log, no answer and no error.
"""

import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pqbroker.security.contexts import client_context
from pqbroker.security.errors import SecurityError
from pqbroker.security.properties import read_properties
from pqbroker.security.tls_options import tls_options

BASIC_LOGIN: Final = "basic.auth.user.info"
BEARER_TOKEN: Final = "bearer.auth.token"
REGISTRY_PREFIX: Final = "schema.registry."
_LEFT_ASIDE: Final = ("basic.auth.credentials.source", "bearer.auth.credentials.source")
PROPERTIES_BYTES_MAX: Final = 1 << 20


class RegistryAccess(NamedTuple):
    """The value of the header Authorization, empty without one, and the options of TLS by the names of `ssl.*`."""

    authorization: str
    tls: Mapping[str, str]

    def context(self) -> ssl.SSLContext:
        """Return the context of a connection. SecurityError."""
        return client_context(tls_options(self.tls))


def load_access(file: str) -> RegistryAccess:
    """Read a file; an empty name is none. SecurityError names the file."""
    if not file:
        return RegistryAccess("", {})
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(PROPERTIES_BYTES_MAX + 1)
    except OSError as error:
        raise SecurityError(f"cannot read {file}: {error.strerror}") from None
    if len(data) > PROPERTIES_BYTES_MAX:
        raise SecurityError(f"{file} has more than {PROPERTIES_BYTES_MAX} bytes; give a file of properties")
    try:
        entries = list(read_properties(data.decode()))
    except UnicodeDecodeError as error:
        raise SecurityError(f"{file} is not UTF-8 at byte {error.start}") from None
    return _read(file, {name.removeprefix(REGISTRY_PREFIX): value.strip() for _, name, value in entries})


def _read(file: str, texts: Mapping[str, str]) -> RegistryAccess:
    basic, bearer = texts.get(BASIC_LOGIN, ""), texts.get(BEARER_TOKEN, "")
    for name in texts:
        if name not in (BASIC_LOGIN, BEARER_TOKEN, *_LEFT_ASIDE) and not name.startswith("ssl."):
            known = f"{BASIC_LOGIN}, {BEARER_TOKEN} or {REGISTRY_PREFIX}ssl.…"
            raise SecurityError(f"{file}: unknown name {name}; give {known}")
    if basic and bearer:
        raise SecurityError(f"{file} has both {BASIC_LOGIN} and {BEARER_TOKEN}; give one of them")
    if basic and ":" not in basic:
        raise SecurityError(f"{file}: {BASIC_LOGIN} has no colon; it has the form USER:PASSWORD")
    if not (basic + bearer).isprintable():
        raise SecurityError(f"{file}: {BASIC_LOGIN if basic else BEARER_TOKEN} has letters that no header may have")
    authorization = f"Bearer {bearer}" if bearer else ""
    if basic:
        authorization = f"Basic {b64encode(basic.encode()).decode()}"
    return RegistryAccess(authorization, {name: text for name, text in texts.items() if name.startswith("ssl.")})
