"""The super user that a start makes: without it nobody could make the others."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FirstUser:
    """A super user that a start makes, unless it exists."""

    name: str
    password: str = field(repr=False)
