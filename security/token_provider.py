"""Tokens of a file for aiokafka's clients, which read it for each login."""

from aiokafka.abc import AbstractTokenProvider

from pqbroker.security.client_login import ClientLogin


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Gives the token that a login's file has now."""

    def __init__(self, login: ClientLogin) -> None:
        super().__init__()
        self._login = login

    async def token(self) -> str:
        """Return the token. SecurityError."""
        return self._login.token()
