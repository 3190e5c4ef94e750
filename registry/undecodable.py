"""The one refusal of values and schemas, by name."""

NOT_FRAMED = "NOT_FRAMED"
UNAVAILABLE = "REGISTRY_UNAVAILABLE"
UNKNOWN = "SCHEMA_UNKNOWN"
INVALID_SCHEMA = "SCHEMA_INVALID"
LARGE_SCHEMA = "SCHEMA_TOO_LARGE"
DEEP_SCHEMA = "SCHEMA_TOO_DEEP"
INVALID_VALUE = "VALUE_INVALID"
LARGE_VALUE = "VALUE_TOO_LARGE"
DEEP_VALUE = "VALUE_TOO_DEEP"
NOT_INSTALLED = "SCHEMAS_NOT_INSTALLED"


class Undecodable(ValueError):
    """A value that stays raw: a code for programs, a reason with its cure for people."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    def document(self) -> dict[str, str]:
        """Return {code, reason}, as answers show a part that stays raw."""
        return {"code": self.code, "reason": self.reason}
