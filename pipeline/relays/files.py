"""The files of a replay, in the order of their names: fixed at its start, since a job that continues counts in them."""

from collections.abc import Mapping
from pathlib import Path

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.lake import LANDED
from pqbroker.pipeline.lakes.versions import LATEST

PARQUET, LINES = ".parquet", (".jsonl", ".ndjson", ".json")
_ROWS = (LATEST, LANDED.batches)


def find_files(source: Path) -> dict[str, int]:
    """Path -> size of each file: of the one, or of all in a directory, of the rows alone in one of `land`.

    In one of `snapshot` it is the newest version.

    JobError without any.
    """
    place = source.resolve()
    if not place.exists():
        raise JobError(f"{source} does not exist; name a file or a directory of files")
    if (place / "topic.json").is_file():
        place = next((inner.resolve() for name in _ROWS if (inner := place / name).is_dir()), place)
    found = [place] if place.is_file() else sorted(path for path in place.rglob("*") if _is_visible(path, place))
    files = {str(path): path.stat().st_size for path in found if path.suffix in (PARQUET, *LINES)}
    if not files:
        raise JobError(f"{source} has no files of Parquet (.parquet) or JSON lines ({', '.join(LINES)})")
    return files


def check_files(files: Mapping[str, int]) -> None:
    """JobError when a file is not what it was at the job's start: its records would be counted differently."""
    for name, size in files.items():
        path = Path(name)
        if not path.is_file() or path.stat().st_size != size:
            raise JobError(f"{name} was changed or removed since the job began; begin another one with --state DIR")


def _is_visible(path: Path, root: Path) -> bool:
    return path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
