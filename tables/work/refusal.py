"""Refusal of a query, as its client is shown it."""


class QueryRefused(Exception):
    """A code for programs, cause and cure for people."""

    def __init__(self, code: str, message: str, cure: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cure = cure
