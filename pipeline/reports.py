"""What a job tells of itself: a line a batch, its offsets as a consumer group's, figures in a file."""

from collections.abc import Callable, Mapping

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.lake import Batch
from pqbroker.pipeline.landing import Landing
from pqbroker.pipeline.progress import Figures, Progress


class Reports:
    """Told of each batch that is done; `say` gets its line."""

    def __init__(self, admin: Admin, landing: Landing, say: Callable[[str], None]) -> None:
        self._admin = admin
        self._topic = landing.topic
        self._group = landing.group
        self._figures = None if landing.figures is None else Figures(landing.figures, landing.topic)
        self._say = say

    def resume(self, last: Batch | None) -> None:
        """Set the group to what is there: a killed job may not have come to it."""
        if last is not None:
            offsets = {int(number): offset for number, offset in last.until[self._topic].items()}
            self._say(f"batch {last.number} is there, going on{self._mirror(offsets, last.number)}")

    def batch(self, progress: Progress) -> None:
        """A batch is done."""
        note = self._mirror(progress.offsets, progress.batch)
        self._say(progress.line() + note + self._show(progress))

    def _show(self, progress: Progress) -> str:
        """Write the figures. That they could not be written is told and no more, as with the group."""
        if self._figures is None:
            return ""
        try:
            self._figures.write(progress)
        except OSError as error:
            return f"  ({self._figures.file} not written: {error.strerror})"
        return ""

    def _mirror(self, offsets: Mapping[int, int], batch: int) -> str:
        """Set the group's offsets. That they could not be set is told and no more: the next batch sets them right."""
        if not self._group:
            return ""
        try:
            self._admin.set_group_offsets(self._group, self._topic, offsets, f"batch {batch}")
        except AdminError as error:
            return f"  (group {self._group} not set: {error})"
        return ""
