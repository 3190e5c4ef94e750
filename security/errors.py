"""The one error of settings and files of security."""


class SecurityError(ValueError):
    """A setting or a file of security is invalid; the text names cause and cure, and holds no secret."""
