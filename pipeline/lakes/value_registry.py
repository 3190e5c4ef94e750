"""The schema registry of a job's values, as options name it. It needs no Spark."""

from typing import NamedTuple


class Registry(NamedTuple):
    """A schema registry: its address, the file with credentials, empty without one, and the subject of values, empty
    for TOPIC-value."""

    address: str
    config_file: str = ""
    subject: str = ""

    def subject_of(self, topic: str) -> str:
        """Return the subject whose latest schema has the columns of a topic."""
        return self.subject or f"{topic}-value"
