"""The one error of settings and files of security."""

from typing import Final

CRYPTOGRAPHY_CURE: Final = "`pip install cryptography`, or install pqbroker with its extra `certificates`"


class SecurityError(ValueError):
    """A setting or a file of security is invalid; the text names cause and cure, and holds no secret."""
