"""Reports of a job: a line for each batch, its offsets as a consumer group's, metrics in a file."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.progress import Counts, Figures, Progress


class Reported(Protocol):
    """The topic that a job reads, and the consumer group that shows how far it is; empty for none."""

    @property
    def topic(self) -> str: ...
    @property
    def group(self) -> str: ...


class Reports:
    """Reports each batch that is done; `counts` has what the job counted in it, `say` gets its line."""

    def __init__(
        self,
        admin: Admin,
        job: Reported,
        figures: Figures | None,
        counts: Callable[[int], Counts],
        say: Callable[[str], None],
    ) -> None:
        self._admin = admin
        self._topic = job.topic
        self._group = job.group
        self._figures = figures
        self._counts = counts
        self._say = say

    def resume(self, number: int, offsets: Mapping[int, int]) -> None:
        """Set the group to the last batch, which an earlier job wrote: killed, it may not have done so."""
        self._say(f"batch {number} exists, continuing behind it{self._mirror(offsets, number)}")

    def batch(self, progress: Progress) -> None:
        """Report a batch that is done."""
        progress = replace(progress, counts=self._counts(progress.batch))
        note = self._mirror(progress.offsets, progress.batch)
        self._say(progress.line() + note + self._show(progress))

    def _show(self, progress: Progress) -> str:
        """Write the figures. A failure is only reported, as with the group."""
        if self._figures is None:
            return ""
        try:
            self._figures.write(progress)
        except OSError as error:
            return f"  ({self._figures.file} not written: {error.strerror})"
        return ""

    def _mirror(self, offsets: Mapping[int, int], batch: int) -> str:
        """Set the group's offsets. A failure is only reported: the next batch sets them again."""
        if not self._group:
            return ""
        try:
            self._admin.set_group_offsets(self._group, self._topic, offsets, f"batch {batch}")
        except AdminError as error:
            return f"  (group {self._group} not set: {error})"
        return ""
