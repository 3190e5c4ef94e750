"""Refusal of a merge or a scan, with the input that is its cause."""

from typing import Any


class MergeRefused(Exception):
    """A code for the broker, cause and cure for people. `input`: number of the input that is the cause; None: none."""

    def __init__(self, code: str, message: str, cure: str, input_number: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cure = cure
        self.input_number = input_number

    def document(self) -> dict[str, Any]:
        """Return what the message `refused` says."""
        return {"code": self.code, "message": self.message, "cure": self.cure, "input": self.input_number}


def damaged(message: str, input_number: int) -> MergeRefused:
    """Return the refusal of an input whose bytes are not those that were written."""
    cure = "Keep the input as it is; `pqbroker doctor` verifies the files of a stopped broker and names the damage."
    return MergeRefused("INPUT_DAMAGED", message, cure, input_number)


def unreadable(error: OSError, input_number: int) -> MergeRefused:
    """Return the refusal of an input whose file is gone or shorter than the broker says."""
    return MergeRefused("INPUT_GONE", str(error), "Name the input's places again and repeat the merge.", input_number)
