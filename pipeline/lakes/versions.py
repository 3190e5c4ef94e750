"""The version of a table that readers see: `latest` names one that is whole, and a few earlier ones stay for those who
read them."""

import shutil
from pathlib import Path

from pqbroker.pipeline.lakes.lake import Lake, LakeError, sync

LATEST = "latest"
"""The link in the directory."""


def show(lake: Lake, number: int, keep: int) -> None:
    """Let the link name a version that exists, and remove all but the last `keep`. LakeError when it cannot."""
    with lake.writing():
        link = lake.temporary(LATEST)
        link.symlink_to(lake.place(number).relative_to(lake.directory))
        link.rename(lake.directory / LATEST)
        sync(lake.directory)
        for earlier in lake.numbers()[:-keep]:
            removed = lake.temporary(earlier)  # renamed first: a version is whole as long as it has its name
            lake.place(earlier).rename(removed)
            shutil.rmtree(removed)


def version_before(lake: Lake, number: int) -> Path | None:
    """The version that the one of this number changes; None for the first. LakeError when it is missing."""
    if not number:
        return None
    place = lake.place(number - 1)
    if not place.is_dir():
        raise LakeError(f"{place} is missing, and the next version needs it; restore it, or name another with --to DIR")
    return place
